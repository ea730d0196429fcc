"""A run's data on disk and in memory: crash-safe segments, and what was read back of them."""
