"""An Incident as text, JSON or Markdown; depends on types and units only."""
