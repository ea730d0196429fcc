"""The sections of the report: a module each with its `SECTION`, and a template where the page shows it."""
