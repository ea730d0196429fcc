"""Conditions over events, facts, settings and traits: their form in files, their names looked up, and their answers."""
