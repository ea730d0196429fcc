"""Several runs that were read as one: what tells them apart, and what is still one run."""

from pathlib import Path
from shutil import copytree

from click.testing import CliRunner

from rlhfdoctor.cli import main
from rlhfdoctor.core.session import Session
from rlhfdoctor.core.several import find_runs_apart

SAMPLES = Path(__file__).parent.parent / "samples"


def _log(path: Path, hour: int, steps: range) -> Path:
    lines = [
        f"2026-11-20 {hour:02}:{minute:02}:00 INFO Training step {step}/90 | loss: 0.1 | grad_norm: 1.0"
        for minute, step in enumerate(steps)
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _apart(*paths: Path) -> list[str]:
    with Session([str(path) for path in paths]) as session:
        return [Path(name).name for name in find_runs_apart(session)]


def test_recordings_one_after_the_other(tmp_path: Path) -> None:
    for name in ("lab-save-kill", "lab-pinned-start"):
        copytree(SAMPLES / name / "run", tmp_path / name)
    assert sorted(_apart(tmp_path)) == ["lab-pinned-start", "lab-save-kill"]
    text = CliRunner().invoke(main, ["analyze", str(tmp_path)]).output
    assert "looks like 2 runs" in text.replace("\n   ", " ")
    assert "get a verdict of each run" in text
    assert "doctor analyze --each" in text.splitlines()[-2] + text.splitlines()[-1]


def test_one_recording() -> None:
    assert _apart(SAMPLES / "lab-save-kill" / "run") == []


def test_logs_of_the_job(tmp_path: Path) -> None:
    first, second = _log(tmp_path / "a.log", 1, range(1, 30)), _log(tmp_path / "b.log", 3, range(1, 20))
    assert _apart(tmp_path) == [first.name, second.name]


def test_a_rotated_log_goes_on(tmp_path: Path) -> None:
    _log(tmp_path / "a.log.1", 1, range(1, 30))
    _log(tmp_path / "a.log", 3, range(30, 50))
    assert _apart(tmp_path) == []


def test_logs_of_two_ranks(tmp_path: Path) -> None:
    _log(tmp_path / "rank0.log", 1, range(1, 30))
    _log(tmp_path / "rank1.log", 1, range(1, 30))
    assert _apart(tmp_path) == []


def test_sessions_of_ray(tmp_path: Path) -> None:
    for name in ("session_2026-11-20_10-00-00_123456_77", "session_2026-11-21_10-00-00_123456_78"):
        copytree(SAMPLES / "ray-memory-monitor" / "run", tmp_path / name / "logs")
    assert len(_apart(tmp_path)) == 2
    assert _apart(tmp_path / name) == []
