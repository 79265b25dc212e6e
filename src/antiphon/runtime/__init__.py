"""The only place with tasks: the API as plain async methods, the runner of a response, its live log and its history."""
