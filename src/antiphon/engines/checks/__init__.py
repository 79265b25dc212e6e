"""Checks of what a caller may send to break things: schemas, grammars, and outputs against both, in a process apart."""
