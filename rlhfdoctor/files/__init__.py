"""The only ways to files that others made or may change: `read` and `write`."""
