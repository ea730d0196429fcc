"""Plug-ins: what a training framework's folder declares, read and checked; the folders themselves are in `rlhfdoctor/frameworks`."""
