"""Transport: HTTP in front of the service, and nothing else."""
