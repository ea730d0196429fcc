"""Fixtures that all tests share."""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rlhfdoctor.cli import main
from rlhfdoctor.diagnose import analyze
from rlhfdoctor.types import Incident

ROOT = Path(__file__).resolve().parent.parent


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real runs come first and one after the other, since they fill two cores; of the rest a file stays together."""
    live = ROOT / "tests" / "live"
    items.sort(key=lambda item: not item.path.is_relative_to(live))
    for item in items:
        item.add_marker(pytest.mark.xdist_group("live" if item.path.is_relative_to(live) else str(item.path)))


@pytest.fixture
def doctor() -> Callable[..., Result]:
    """Runs the command in this process: `doctor("analyze", path).exit_code`."""

    def run(*args: str | Path, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(main, [str(arg) for arg in args], input=stdin)

    return run


@pytest.fixture
def case(tmp_path: Path) -> Callable[[Mapping[str, str]], Incident]:
    """Writes files into a folder and analyses it: `case({"driver.log": "..."})`."""

    def run(files: Mapping[str, str]) -> Incident:
        folder = tmp_path / "run"
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return analyze([str(folder)])

    return run


@pytest.fixture
def kernel_alone() -> Iterator[None]:
    """No other test that asks for this provokes a kernel OOM kill meanwhile: all of them read one kernel log."""
    with Path(tempfile.gettempdir(), "rlhfdoctor-tests-kernel.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
