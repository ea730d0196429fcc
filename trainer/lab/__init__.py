"""The incident lab: real incidents, made on purpose, diagnosed from what they leave behind, cured, run again."""
