"""Events and settings -> named Evidence: all arithmetic of the doctor lives here."""
