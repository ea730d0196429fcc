"""From bytes to report, work grows as the input does: counted in steps of the interpreter, not in seconds."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import rlhfdoctor
from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.report.json import render

OURS = str(Path(rlhfdoctor.__file__).parent)
FEW, MANY = 4, 8
MOST_RATIO = 2.3
"""Twice the events may cost so much more: a sort has a logarithm."""
SEEN_COUNT = 20_000
"""Steps of a function that matter."""


def steps(folder: Path) -> Counter[str]:
    """How many steps each function of ours takes for a whole answer."""
    counts: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        code = frame.f_code
        if code.co_filename == "<string>" and frame.f_back is not None:  # made by `dataclass`, such as a comparison
            code = frame.f_back.f_code
        if not code.co_filename.startswith(OURS):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        name = f"{code.co_filename[len(OURS) + 1 :]}:{code.co_qualname if sys.version_info >= (3, 11) else code.co_name}"

        def count(_frame: FrameType, what: str, _arg: Any) -> Any:
            counts[name] += what == "opcode"
            return count

        return count

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        render(analyze([str(folder)]))
    finally:
        sys.settrace(before)
    return counts


def write_logs(folder: Path, count: int) -> Path:
    """As many logs, each with every message that is known."""
    folder.mkdir()
    for number in range(count):
        lines = (f"2026-03-02 10:{number:02d}:{index % 60:02d} {p.sample}" for index, p in enumerate(PATTERNS))
        (folder / f"worker-{number}.log").write_text("\n".join(lines) + "\n")
    return folder


def write_clutter(folder: Path, count: int) -> Path:
    """As many times the small files that are around a run: a note with a failure in it, a script, YAML, a log of a rank."""
    folder.mkdir()
    for number in range(25 * count):
        (folder / f"note-{number}.md").write_text("# Seen\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
        (folder / f"train-{number}.sh").write_text(f"python train.py --adam_offload --seed {number}\n")
        (folder / f"bad-{number}.yaml").write_text("a: [1,\nb: }\n")
        waits = f"WorkNCCL(SeqNum={number}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds"
        lines = f"[Rank {number}] Watchdog caught collective operation timeout: {waits} before timing out.\nValueError: {number}\n"
        (folder / f"rank-{number}.log").write_text(lines)
        steps_of_it = (f"step:{2 * number + half} - actor/lr:0.0\n" for half in (0, 1))
        (folder / f"a-driver-{number}.log").write_text("".join(steps_of_it))
    return folder


@pytest.mark.sweep
@pytest.mark.parametrize("write", [write_logs, write_clutter])
def test_nothing_is_quadratic(tmp_path: Path, write: Callable[[Path, int], Path]) -> None:
    """Twice the logs, twice the steps, in every function that takes many."""
    write(tmp_path / "warm", 1)
    analyze([str(tmp_path / "warm")])
    few, many = steps(write(tmp_path / "few", FEW)), steps(write(tmp_path / "many", MANY))
    worse = {name: many[name] / max(few[name], 1) for name in many if many[name] > SEEN_COUNT}
    assert {name: round(ratio, 1) for name, ratio in worse.items() if ratio > MOST_RATIO} == {}
    assert sum(many.values()) < MOST_RATIO * sum(few.values())
