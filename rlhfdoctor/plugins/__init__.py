"""Plug-ins: what a training framework's folder in `rlhfdoctor/frameworks` declares, checked when it is read."""
