"""The rules, pure and synchronous: what may follow what, and what the events add up to."""
