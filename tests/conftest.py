"""Fixtures that all tests share."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlhfdoctor.cli import main
from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.types import Incident

ROOT = Path(__file__).resolve().parent.parent
LIVE = "tests/live/"
LAB = "tests/live/test_lab.py"
TRAININGS = ("tests/live/test_train.py", "tests/live/test_zero_turns.py", "tests/live/test_budget.py")
"""Without limits and kills: one worker runs them while another one has the lab's incidents."""
ALONE = (
    "tests/record/test_machine.py::test_real_kill",
    "tests/sources/test_cgroupfs.py::test_live_level",
    "tests/sources/test_cgroupfs.py::test_live_threshold_and_kill",
)
"""Tests of other folders that ask for `kernel_alone`: another worker would idle until the incident of the lab that runs is over."""
LONG = (
    "tests/test_hostile.py",
    "tests/test_bundle.py",
    "tests/test_docs.py",
    "tests/exam/",
    "tests/frameworks/",
    "tests/test_notebooks.py",
)
"""Begun before the others, so that no core idles at the end while one file goes on."""
SLOW, SLOW_S, ATTACKS = ROOT / "tests" / "slow.txt", 0.1, "tests/attacks/"
BUDGET_S = float(os.environ.get("RLHFDOCTOR_TEST_BUDGET_S", 900))
"""So long may the session have run when another incident of the lab is begun; `make lab` runs all of them."""
BEGAN = time.monotonic()
os.environ.pop("COLUMNS", None)  # screens that are kept have the width of a pipe without it
os.environ.setdefault("RLHFDOCTOR_DEBUG", "1")  # a bug of our own is an error, not a gap in a report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests that share the kernel's log come first, of them the lab's incidents last; then the long files; trainings at the end.

    What takes long in the fast lane is marked, by slow.txt.
    """
    items.sort(key=lambda item: _turn(item.nodeid))
    slow = set(SLOW.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in slow or item.nodeid.startswith(ATTACKS):
            item.add_marker("sweep")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """With RLHFDOCTOR_SLOW=FILE, as `make slow` sets it, tests that take long are written there."""
    path = os.environ.get("RLHFDOCTOR_SLOW")
    if path and report.when == "call" and report.duration > SLOW_S and "PYTEST_XDIST_WORKER" not in os.environ:
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid}\n")


def _alone(name: str) -> bool:
    """Whether a test belongs to those that run one after the other, in one worker."""
    return name.startswith((LIVE, *ALONE)) and not name.startswith(TRAININGS)


def _turn(name: str) -> int:
    if name.startswith(LAB):
        return 1
    if name.startswith(TRAININGS):
        return 4
    return 0 if _alone(name) else 2 if name.startswith(LONG) else 3


def pytest_runtest_setup(item: pytest.Item) -> None:
    """On a slow machine the last incidents are left to `make lab`, and the summary says so."""
    if item.nodeid.startswith(LAB) and time.monotonic() - BEGAN > BUDGET_S:
        pytest.skip(f"{BUDGET_S:.0f} s are over (RLHFDOCTOR_TEST_BUDGET_S): left to 'make lab'")


@pytest.hookimpl(optionalhook=True)  # there without xdist, too
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Who reads one kernel log goes to one worker, one after the other; of the rest a file stays together, trainings too."""
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return LIVE if _alone(nodeid) else nodeid.partition("::")[0]

    return ByFile(config, log)


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
def kernel_alone(request: pytest.FixtureRequest) -> Iterator[None]:
    """No other test that asks for this provokes a kernel OOM kill meanwhile: all of them read one kernel log."""
    assert _alone(request.node.nodeid), "name it in ALONE, or another worker waits until the incident that runs is over"
    with Path(tempfile.gettempdir(), "rlhfdoctor-tests-kernel.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
