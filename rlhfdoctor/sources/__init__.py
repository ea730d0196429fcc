"""One reader per file of the machine; the root path is an argument, absent is None, units are bytes."""
