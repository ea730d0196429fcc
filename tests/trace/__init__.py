"""Tests of the trace: frames, store, reading, tables."""
