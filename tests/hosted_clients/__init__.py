"""Runs of public clients with the tools that the server runs, in environments of their own where their pins differ."""
