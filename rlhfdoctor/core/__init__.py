"""The use cases: what commands do with a session."""
