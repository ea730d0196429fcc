"""The sections of the report: a module each with its `SECTION`, beside it a template if the page shows it."""
