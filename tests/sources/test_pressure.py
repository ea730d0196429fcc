"""Pressure of memory: PSI of the machine and of a cgroup, old kernels, damaged text, real triggers."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from rlhfdoctor.sources.pressure import Pressure, open_trigger, parse_pressure

SOME = b"some avg10=1.50 avg60=0.40 avg300=0.10 total=76879\n"
FULL = b"full avg10=0.25 avg60=0.10 avg300=0.00 total=60773\n"
PSI = Path("/proc/pressure/memory")


def may_trigger() -> bool:
    """Whether the kernel lets us set triggers of two seconds: with CAP_SYS_RESOURCE, and from 6.4 on without."""
    rights = next(
        int(line.split()[1], 16)
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff")
    )
    release = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
    return os.access(PSI, os.W_OK) and (bool(rights >> 24 & 1) or release >= (6, 4))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (SOME + FULL, Pressure(0.015, 0.0025, 76879, 60773)),
        (SOME, Pressure(0.015, 0.0, 76879, 0)),
        (FULL + SOME, Pressure(0.015, 0.0025, 76879, 60773)),
        (SOME + FULL[:20], Pressure(0.015, 0.0, 76879, 0)),
        (SOME.replace(b"1.50", b"100.00"), Pressure(1.0, 0.0, 76879, 0)),
        (SOME + b"half avg10=9.00 avg60=9 avg300=9 total=9\n", Pressure(0.015, 0.0, 76879, 0)),
        (SOME.replace(b"avg60=0.40 ", b""), Pressure(0.015, 0.0, 76879, 0)),
    ],
    ids=["both", "no full", "other order", "full cut off", "all the time", "another row", "fewer columns"],
)
def test_pressure(data: bytes, expected: Pressure) -> None:
    """Shares are of one and totals in microseconds; a kernel without a full row has none of it."""
    assert expected == parse_pressure(data)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n\n",
        FULL,
        b"some\n",
        b"some avg10=x total=5\n",
        b"some avg10=1.0 total=1.5\n",
        b"some avg10=1.0\n",
        b"\xff\0=\n",
        SOME[:20],
    ],
    ids=[
        "empty",
        "blank lines",
        "full only",
        "no columns",
        "no ratio",
        "broken total",
        "no total",
        "garbage",
        "cut off",
    ],
)
def test_no_pressure(data: bytes) -> None:
    """What does not say how long some task waited is None."""
    assert parse_pressure(data) is None


def test_no_trigger(tmp_path: Path) -> None:
    """A kernel without PSI has no trigger, and a folder is none."""
    assert (open_trigger(str(tmp_path / "memory")), open_trigger(str(tmp_path))) == (None, None)


def test_trigger_text(tmp_path: Path) -> None:
    """The kernel is reported the stall and the window in microseconds, ended by a zero byte."""
    path = tmp_path / "memory"
    path.write_bytes(b"")
    handle = open_trigger(str(path), 70_000, 2_000_000)
    assert handle is not None
    os.close(handle)
    assert path.read_bytes() == b"some 70000 2000000\0"


@pytest.mark.skipif(not PSI.exists(), reason="needs a kernel with PSI")
def test_live_pressure() -> None:
    """This machine's pressure is read, and some is never below full."""
    found = parse_pressure(PSI.read_bytes())
    assert found is not None
    assert (0 <= found.full_ratio <= 1, found.full_us <= found.some_us) == (True, True)


@pytest.mark.live
@pytest.mark.skipif(not may_trigger(), reason="needs PSI and CAP_SYS_RESOURCE, or Linux 6.4")
def test_live_trigger() -> None:
    """The kernel takes a trigger, and one whose stall is longer than its window is refused and leaves no descriptor."""
    handle = open_trigger(str(PSI), 100_000, 2_000_000)
    assert handle is not None
    os.close(handle)
    before = os.listdir("/proc/self/fd")
    assert open_trigger(str(PSI), 3_000_000, 2_000_000) is None
    assert before == os.listdir("/proc/self/fd")
