"""The command line: serve, chat, models, keys, tenants, doctor."""
