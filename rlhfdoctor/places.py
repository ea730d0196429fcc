"""Where the data of the package is: its rules, its documentation."""

from __future__ import annotations

import os
from pathlib import Path


def rules_folder() -> Path:
    """The catalogue in use: `$RLHFDOCTOR_RULES`, else the bundled one."""
    named = os.environ.get("RLHFDOCTOR_RULES")
    return Path(named) if named else bundled_folder()


def rules_in(folder: Path) -> list[Path]:
    """The folders of the rules of a catalogue, by name; a rule's own folder holds itself."""
    if (folder / "rule.yaml").exists():
        return [folder]
    return sorted(file.parent for file in folder.glob("*/rule.yaml"))


def bundled_folder() -> Path:
    """The catalogue that comes with the package: beside it (checkout) or inside it (wheel)."""
    package = Path(__file__).resolve().parent
    beside = package.parent / "rules"
    return beside if beside.is_dir() else package / "rules"


def pages_folder() -> Path:
    """The pages of the documentation, which come with the package."""
    return Path(__file__).resolve().parent / "docs"


def data_folders() -> tuple[Path, ...]:
    """All that the package reads of its own: its files, and the catalogue in use."""
    return Path(__file__).resolve().parent, rules_folder()
