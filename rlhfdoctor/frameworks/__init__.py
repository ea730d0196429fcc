"""One folder per training framework: `framework.yaml`, `settings.yaml`; `layout.py` if the estimate supports it."""
