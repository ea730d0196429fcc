"""Where the catalogue that comes with the package is."""

from __future__ import annotations

from pathlib import Path


def bundled_folder() -> Path:
    """The catalogue that comes with the package: beside it (checkout) or inside it (wheel)."""
    package = Path(__file__).resolve().parent.parent
    beside = package.parent / "rules"
    return beside if beside.is_dir() else package / "rules"
