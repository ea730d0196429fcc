"""The doctor's tools for programs that act for a user: `doctor mcp`."""
