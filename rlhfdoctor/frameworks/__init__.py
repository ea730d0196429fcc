"""One folder per training framework: `framework.yaml`, `settings.yaml`, and `layout.py` if the estimate supports it."""
