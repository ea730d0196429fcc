"""An incident as text, Markdown, JSON, a page: the package depends on types alone."""
