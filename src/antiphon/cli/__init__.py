"""The command line: serve, chat, models, doctor."""
