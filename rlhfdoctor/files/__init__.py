"""The only ways to what others made or may change: `read`, `write`, `walk`."""
