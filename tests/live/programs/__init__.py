"""Programs as their users write them, on TRL, torchrun, DataLoader and Ray."""
