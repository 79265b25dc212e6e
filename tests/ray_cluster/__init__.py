"""Servers and engines on a Ray cluster of three nodes; see `make ray`."""
