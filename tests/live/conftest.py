"""What is here runs real Ray, a real kernel or a real terminal: marked `live`."""

from __future__ import annotations

from pathlib import Path

import pytest

collect_ignore_glob = ["programs/*"]  # with --doctest-modules they would be imported, which runs them


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test of this folder has the mark, whoever writes it."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.live)
