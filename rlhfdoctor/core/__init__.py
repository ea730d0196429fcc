"""The use cases: a session, and what commands do with it."""
