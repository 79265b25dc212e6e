"""The command line: serve, chat, models, keys, tenants, db, doctor."""
