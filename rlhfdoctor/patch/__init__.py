"""Findings -> changes of the user's own configuration, in its own spelling for its release."""
