"""The driver: one client for any Responses endpoint, which hands back one normalized answer."""
