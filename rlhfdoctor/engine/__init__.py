"""The rule engine: it compares, and refers to no cause by name."""
