"""Kills of real servers in the middle of mixed traffic, and the rules that must hold afterwards (issue 3, Crash)."""
