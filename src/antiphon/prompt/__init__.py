"""Items to prompt: chat messages, tool dialects, schemas and the budget. Pure; rendering is a call of the engine."""
