"""Where tokens come from: one small interface, and the engines behind it."""
