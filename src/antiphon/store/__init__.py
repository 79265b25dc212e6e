"""Where state lives: one interface, and the memory and SQLite stores behind it."""
