"""Random and coverage-guided inputs for every parser: `make fuzz`."""
