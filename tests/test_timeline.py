"""Charts of recorded runs: true samples, at several levels, with phases, limits and the death."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.charts import Chart
from rlhfdoctor.core.timeline import make_charts
from rlhfdoctor.report.html import render
from rlhfdoctor.report.trace_json import to_dict
from tests.record.build import event, phase, steps, write_run

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20


def charts_of(folder: Path) -> list[Chart]:
    return make_charts([str(folder)], analyze([str(folder)]))


def test_roles_stack_to_the_use(tmp_path: Path) -> None:
    """At every sample a role is the sum of its processes, and the highest point is the run's."""
    anon = {"actor#1": lambda t: 1000.0 + t, "actor#2": lambda t: 500.0, "critic#1": lambda t: 300.0}
    (found,) = charts_of(write_run(tmp_path / "run", 60, use=lambda t: 1800.0 + t, anon=anon))
    panel = found.panels[0]
    assert (panel.kind, tuple(map(str, panel.names))) == ("role", ("actor", "critic"))
    assert panel.levels[-1].values[0] == [(1500 + t) * MIB for t in range(60)]
    assert panel.top_bytes == (1500 + 59 + 300) * MIB


def test_a_spike_of_one_second_is_on_every_level(tmp_path: Path) -> None:
    """Of each bucket the lowest and the highest sample stay: what lasts a second in three hours is drawn."""
    anon = {"actor": lambda t: 9000.0 if t == 5003 else 1.0 if t == 7001 else 1000.0}
    (found,) = charts_of(write_run(tmp_path / "run", 10_000, anon=anon))
    levels = found.panels[0].levels
    assert [len(level.times_s) for level in levels[:-1]] == sorted(len(level.times_s) for level in levels[:-1])
    assert len(levels) == 3 and len(levels[0].times_s) <= 1004 and len(levels[-1].times_s) == 10_000
    for level in levels:
        assert (max(level.values[0]), min(level.values[0])) == (9000 * MIB, MIB)
        assert list(level.times_s) == sorted(level.times_s)


def test_panels_share_one_axis() -> None:
    """A cgroup that came later than the first process begins later in the picture, too."""
    (found,) = charts_of(ROOT / "samples/lab-pinned-start/run")
    roles, kinds = found.panels
    assert roles.levels[-1].times_s[0] == pytest.approx(0.0, abs=1e-6)
    assert kinds.levels[-1].times_s[0] > 1
    assert "page-locked" in map(str, kinds.names) and [str(bound.name) for bound in roles.bounds] == ["container limit"]
    death = next(mark.at_s for mark in found.marks if mark.kind == "death")
    place = max(range(len(kinds.levels[-1].times_s)), key=lambda p: sum(row[p] for row in kinds.levels[-1].values))
    assert kinds.levels[-1].times_s[place] == pytest.approx(death, abs=1.0), "it died at the peak"


def test_phases_follow_one_another(tmp_path: Path) -> None:
    """What several roles enter one after the other is one phase, and the last one ends with the run."""
    marks = [
        *steps(2, 20),
        phase(2, "rollout"),
        phase(10, "update"),
        phase(11, "update", role="critic"),
        phase(30, "rollout"),
    ]
    (found,) = charts_of(write_run(tmp_path / "run", 40, anon={"actor": lambda t: 100.0}, events=marks))
    assert [(span.phase, round(span.begin_s), round(span.end_s)) for span in found.spans] == [
        ("rollout", 2, 10),
        ("update", 10, 30),
        ("rollout", 30, 39),
    ]
    assert [mark.kind for mark in found.marks] == ["step", "step"]


def test_a_limit_far_above_is_told_in_words(tmp_path: Path) -> None:
    """A picture that holds a limit of ten times the use would show nothing else."""
    (found,) = charts_of(write_run(tmp_path / "run", 30, use=lambda t: 100.0, anon={"actor": lambda t: 100.0}))
    assert all(not panel.bounds for panel in found.panels)
    assert tuple(map(str, found.notes)) == ("node memory (64.0 GiB) lies above the picture",)


def test_logs_alone_have_no_chart() -> None:
    """Without a trace there is nothing to draw."""
    path = str(ROOT / "samples/easyr1-long-prompts/run")
    assert make_charts([path], analyze([path])) == []


def test_damaged_and_hostile_marks(tmp_path: Path) -> None:
    """A phase that is none of ours, or a time that is no number, is no phase; nothing of it reaches the page."""
    marks = [
        phase(5, 'x"/></svg><meta http-equiv=refresh content="0;url=https://evil.example/">'),
        event("mark", 6, phase="update", at_ns="soon"),
        phase(8, "update"),
    ]
    run = write_run(tmp_path / "run", 20, anon={"actor": lambda t: 100.0}, events=marks)
    incident = analyze([str(run)])
    (found,) = make_charts([str(run)], incident)
    assert [span.phase for span in found.spans] == ["update"] and round(found.spans[0].begin_s) == 8
    assert "evil.example" not in render(incident, [found])


def test_a_phase_does_not_outlive_the_job(tmp_path: Path) -> None:
    """The last phase ends when the job does, whatever the recorder saw after it."""
    (found,) = charts_of(
        write_run(
            tmp_path / "run",
            40,
            anon={"actor": lambda t: 100.0},
            events=[phase(3, "update"), event("job.exited", 25, code=1)],
        )
    )
    assert [(span.phase, round(span.end_s)) for span in found.spans] == [("update", 25)]


@pytest.mark.parametrize("back_s", [30, 86_400 * 60])
def test_a_clock_that_was_set(tmp_path: Path, back_s: int) -> None:
    """Samples are in order of time, the page can be made, and a note tells of it; also where the jump is months."""
    run = write_run(
        tmp_path / "run",
        60,
        use=lambda t: 90.0,
        anon={"actor": lambda t: 100.0},
        clock=lambda t: t - back_s * (t >= 30),
    )
    (found,) = charts_of(run)
    for panel in found.panels:
        for level in panel.levels:
            assert list(level.times_s) == sorted(level.times_s) and level.times_s[-1] <= found.length_s + 1e-6
    assert "the clock was set back during the run" in map(str, found.notes)
    assert "<svg" in render(analyze([str(tmp_path / "run")]), [found])


def test_forked_processes_are_said_to_share() -> None:
    """Where the sum of the roles is more than the container held, the picture says why."""
    (found,) = charts_of(ROOT / "samples/lab-data-loader/run")
    assert any("forked processes share pages" in str(note) for note in found.notes)


def test_gpus_are_lines_against_their_size(tmp_path: Path) -> None:
    """A line for each GPU, not stacked; a reading that failed is a gap in its line."""
    run = write_run(
        tmp_path / "run",
        4,
        anon={"actor": lambda t: 100.0},
        gpus=[lambda t: (10 + t) * 1024, lambda t: -1 if t == 2 else (30 + t) * 1024],
    )
    (found,) = charts_of(run)
    panel = found.panels[-1]
    assert (panel.kind, panel.stacked, tuple(map(str, panel.names))) == ("gpu", False, ("GPU 0", "GPU 1"))
    assert [(str(bound.name), bound.bytes >> 30) for bound in panel.bounds] == [("size of the GPU", 80)]
    assert [[size >> 30 if size >= 0 else size for size in row] for row in panel.levels[-1].values] == [
        [10, 11, 12, 13],
        [30, 31, -1, 33],
    ]
    page = render(analyze([str(tmp_path / "run")]), [found])
    assert page.count('<polyline class="line') == 2


def test_largest_processes_at_the_end(tmp_path: Path) -> None:
    """The ten that hold most at the last sample, with their growth of late."""
    anon = {f"actor#{n}": lambda t, n=n: 100.0 * n for n in range(1, 13)} | {"critic": lambda t: 2000.0 + t}
    (found,) = charts_of(write_run(tmp_path / "run", 600, anon=anon))
    assert [holder.held_bytes // MIB for holder in found.holders] == [2599, *range(1200, 300, -100)]
    assert [holder.growth_bytes_per_s for holder in found.holders[:2]] == [pytest.approx(MIB), 0.0]
    assert found.holders[0].role == "critic" and found.holders[0].peak_bytes == 2599 * MIB
    assert found.holders[0].command in render(analyze([str(tmp_path / "run")]), [found])


def test_lines_of_code_that_held_the_gpu(tmp_path: Path) -> None:
    """Of each process the last snapshot, one that ran out of memory first; in the page and in the figures."""
    lines = {"lines": ["a/train.py:7 loss", "a/<b>.py:9 f"], "sizes": [900 * MIB, MIB]}
    events = [
        event("process.snapshot", 1, pid=1001, why="full", held_bytes=5 * MIB, **lines),
        event("process.snapshot", 2, pid=1001, why="full", held_bytes=999 * MIB, **lines),
        event("process.snapshot", 3, pid=1002, why="out of memory", held_bytes=905 * MIB, **lines),
        event("process.snapshot", 3, pid=1003, why=7, held_bytes=None, lines=[7, "x"], sizes=["x", None]),
    ]
    anon = {"actor": lambda t: 100.0, "critic": lambda t: 90.0}
    (found,) = charts_of(write_run(tmp_path / "run", 4, anon=anon, events=events))
    assert [(one.pid, one.role, one.ran_out, one.held_bytes // MIB) for one in found.snapshots][:2] == [
        (1002, "critic", True, 905),
        (1001, "actor", False, 999),
    ]
    assert [(line.text, line.held_bytes // MIB) for line in found.snapshots[0].lines] == [(lines["lines"][0], 900), (lines["lines"][1], 1)]
    page = render(analyze([str(tmp_path / "run")]), [found])
    assert "when torch ran out of memory: pid 1002 (critic)" in page and "a/&lt;b&gt;.py:9 f" in page and "a/<b>" not in page
    (node,) = to_dict([found])["nodes"]
    assert node["gpu_snapshots"][0]["lines"][0] == {"line": "a/train.py:7 loss", "held_bytes": 900 * MIB}
