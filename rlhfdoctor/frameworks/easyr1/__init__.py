"""EasyR1."""
