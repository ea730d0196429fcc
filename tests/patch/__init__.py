"""Edits of the user's files: what is written, what is left alone, and the way back."""
