"""Messages, catalogues and languages."""
