"""One folder a training framework: `framework.yaml`, `settings.yaml`, and `layout.py` where the estimate knows its layout."""
