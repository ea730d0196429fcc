"""Configuration <-> canonical settings, in the spelling of a version."""
