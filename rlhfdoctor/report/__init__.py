"""An Incident as text, JSON or Markdown; knows types and units only."""
