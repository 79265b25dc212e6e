"""The way out: requests to addresses that someone else names, and nothing else."""
