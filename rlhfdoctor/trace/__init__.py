"""A run's recorded data: crash-safe segments, written as it grows, read back at any time."""
