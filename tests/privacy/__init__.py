"""What the redactor of bundles leaves of planted secrets."""
