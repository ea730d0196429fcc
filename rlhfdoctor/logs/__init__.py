"""Text -> Events: open anything, find hits of all patterns in one pass, parse only around them."""
