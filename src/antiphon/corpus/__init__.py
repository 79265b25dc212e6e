"""Documents: what a file says, read in a process of its own."""
