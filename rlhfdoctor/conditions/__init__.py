"""Conditions over events, facts, settings, traits: their form in files, the look-up of names, their answers."""
