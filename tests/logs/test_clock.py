"""Stamps of kernels, Ray, vLLM, torch and slurm, with and without year and zone."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from rlhfdoctor.logs.clock import read_time


def utc(*parts: int) -> float:
    """Unix seconds of a moment in UTC."""
    return datetime(*parts, tzinfo=timezone.utc).timestamp()  # type: ignore[arg-type, misc]


FULL = {
    "ray": ("[2025-04-02 15:02:00,117 E 1 1] (raylet) node_manager.cc:3069: x", utc(2025, 4, 2, 15, 2, 0, 117000)),
    "deepspeed": ("[2025-02-18 09:14:03,530] [INFO] [launch.py:318] x", utc(2025, 2, 18, 9, 14, 3, 530000)),
    "iso with zone": ("2024-04-29T14:55:41,678628+02:00 x", utc(2024, 4, 29, 12, 55, 41, 678628)),
    "iso with zone without colon": ("2024-04-29T14:55:41-0730 x", utc(2024, 4, 29, 22, 25, 41)),
    "journal": ("2026-09-25T07:58:02.631401+00:00 host kernel: x", utc(2026, 9, 25, 7, 58, 2, 631401)),
    "talos": ("kern:     err: [2026-07-25T14:23:17.527285605Z]: x", utc(2026, 7, 25, 14, 23, 17) + 0.527285605),
    "slurm": ("slurmstepd: error: *** JOB 6 ON n CANCELLED AT 2025-10-04T17:41:09 ***", utc(2025, 10, 4, 17, 41, 9)),
    "dmesg -T": ("[Fri Nov 21 16:40:12 2025] x", utc(2025, 11, 21, 16, 40, 12)),
    "dmesg -x": ("kern  :info  : [Thu Aug 17 17:29:27 2023] x", utc(2023, 8, 17, 17, 29, 27)),
    "one-digit day": ("[Thu Aug  7 17:29:27 2023] x", utc(2023, 8, 7, 17, 29, 27)),
    "american": ("04/02/2025 15:02:00 - INFO - x", utc(2025, 4, 2, 15, 2)),
    "behind a ray prefix": (
        "(raylet, ip=10.0.0.2) [2025-04-02 15:02:00,117 E 1 1] x",
        utc(2025, 4, 2, 15, 2, 0, 117000),
    ),
    "leap second": ("2016-12-31T23:59:60Z x", utc(2016, 12, 31, 23, 59, 59)),
}


@pytest.mark.parametrize(("line", "expected"), FULL.values(), ids=FULL)
def test_full_stamp(line: str, expected: float) -> None:
    """A stamp with a year needs nothing else; one without a zone is UTC."""
    assert pytest.approx(expected, abs=1e-5) == read_time(line)


@pytest.mark.parametrize(("line", "expected"), FULL.values(), ids=FULL)
def test_own_year_wins(line: str, expected: float) -> None:
    """The year of the stamp goes before the one that is given."""
    assert pytest.approx(expected, abs=1e-5) == read_time(line, 1999)


WITHOUT_YEAR = {
    "syslog": ("Jul 15 19:05:27 host kernel: x", utc(2025, 7, 15, 19, 5, 27)),
    "syslog with uptime": ("May  5 20:18:46 host kernel: [  318.445021] x", utc(2025, 5, 5, 20, 18, 46)),
    "vllm v0": ("INFO 01-11 15:51:18 llm_engine.py:275] x", utc(2025, 1, 11, 15, 51, 18)),
    "vllm v1": ("ERROR 05-07 02:14:18 [core.py:396] x", utc(2025, 5, 7, 2, 14, 18)),
    "vllm 0.10": ("(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] x", utc(2025, 9, 28, 15, 47, 24)),
    "torch": (
        "[rank1]:[E1203 11:27:45.310468221 ProcessGroupNCCL.cpp:607] x",
        utc(2025, 12, 3, 11, 27, 45) + 0.310468221,
    ),
    "torch in march": (
        "[rank1]:[E321 11:27:45.310468221 ProcessGroupNCCL.cpp:607] x",
        utc(2025, 3, 21, 11, 27, 45) + 0.310468221,
    ),
    "torch warning": (
        "[rank1]:[W613 12:19:44.730915508 TCPStore.cpp:125] x",
        utc(2025, 6, 13, 12, 19, 44) + 0.730915508,
    ),
    "glog": ("E0408 10:01:52.863123 77 x.cc:1] x", utc(2025, 4, 8, 10, 1, 52, 863123)),
}


@pytest.mark.parametrize(("line", "expected"), WITHOUT_YEAR.values(), ids=WITHOUT_YEAR)
def test_year_from_outside(line: str, expected: float) -> None:
    """A stamp without a year takes the year that is given."""
    assert pytest.approx(expected, abs=1e-5) == read_time(line, 2025)


@pytest.mark.parametrize("line", [line for line, _ in WITHOUT_YEAR.values()], ids=WITHOUT_YEAR)
def test_no_year_no_time(line: str) -> None:
    """Without any year the time is unknown, rather than of this year."""
    assert read_time(line) is None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "no stamp",
        "[ 2929.921270] python invoked oom-killer",
        "[  +0.000427] x",
        "2025-13-41 25:61:61 x",
        "2025-02-30 10:00:00 x",
        "step 12-30 12:00",
        "x" * 400 + "2025-04-02 15:02:00",
        "[二 13月  3 05:57:48 2024] x",
    ],
)
def test_no_stamp(line: str) -> None:
    """What is no date gives no time; so do dates that do not exist, and stamps far inside a line."""
    assert read_time(line, 2025) is None
