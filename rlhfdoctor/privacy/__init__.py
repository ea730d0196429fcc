"""What is cut from what leaves the machine."""
