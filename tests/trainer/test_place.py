"""The lab's place: what killed processes leave behind does not stop the next run."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("deepspeed")

from trainer.lab import place


def test_stale_locks_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch waits for a `lock` file for ever; the operators themselves stay."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    operator = place.extensions() / "cpu_adam"
    operator.mkdir(parents=True)
    for name in ("lock", "cpu_adam.so"):
        (operator / name).write_text("")
    place.unlock()
    assert [path.name for path in operator.iterdir()] == ["cpu_adam.so"]


def test_nothing_compiled_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the folder has no locks."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    place.unlock()
    assert list(tmp_path.iterdir()) == []
