"""Configuration -> canonical settings, and back to the spelling of a version."""
