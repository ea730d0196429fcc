"""The table of a benchmark: rows as they are measured, and the page that they are written to."""

from __future__ import annotations

import sys
from pathlib import Path


class Table:
    """Figure, measured value, aim."""

    def __init__(self) -> None:
        self._rows: list[tuple[str, str, str]] = []

    def add(self, figure: str, measured: str, aim: str = "-") -> None:
        """Adds a row and prints it."""
        self._rows.append((figure, measured, aim))
        sys.stdout.write(f"{figure}: {measured} (aim {aim})\n")
        sys.stdout.flush()

    def write(self, path: Path, head: str) -> None:
        """Writes the page; `head` stands above the table."""
        rows = "".join(f"| {figure} | {measured} | {aim} |\n" for figure, measured, aim in self._rows)
        path.write_text(f"{head}\n\n| figure | measured | aim |\n|---|---|---|\n{rows}")
