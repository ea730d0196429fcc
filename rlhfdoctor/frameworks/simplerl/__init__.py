"""simpleRL-reason."""
