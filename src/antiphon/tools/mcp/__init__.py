"""Tools of MCP servers: what a request declares, what a server lists, and its calls."""
