"""Checks of proposed settings against the real releases of the frameworks."""
