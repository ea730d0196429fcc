"""One reader per system file; the root path is an argument, missing values are None, units are bytes."""
