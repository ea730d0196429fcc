"""The rule engine: it compares; it refers to no cause by name."""
