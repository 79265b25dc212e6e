"""Hosted tools: what the server runs itself, between the turns of a model."""
