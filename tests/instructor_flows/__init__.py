"""Runs of `instructor`, whose pins are not those of the other tests."""
