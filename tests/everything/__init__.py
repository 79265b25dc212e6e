"""The MCP reference server with every feature, behind a real server: by hand, since it is a package of npm."""
