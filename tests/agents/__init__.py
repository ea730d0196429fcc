"""`doctor mcp`."""
