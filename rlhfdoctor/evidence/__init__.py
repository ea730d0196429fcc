"""What was read of a run -> named Evidence: all arithmetic of the doctor lives here."""
