"""A server over a large store: its memory, look-ups, start and sweep, held to fixed bounds (faults B2 8)."""
