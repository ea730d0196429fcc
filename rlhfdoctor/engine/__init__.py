"""The rule engine: it compares, and knows no cause by name."""
