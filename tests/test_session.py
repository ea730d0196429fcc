"""One reading: whatever a command shows, no source, trace or configuration is read twice."""

from __future__ import annotations

import os
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlhfdoctor import analyze, compare, make_charts
from rlhfdoctor.cli import main
from rlhfdoctor.core.bundle import make_bundle
from rlhfdoctor.core.diagnose import make_incident
from rlhfdoctor.core.session import Session
from rlhfdoctor.core.timeline import draw_charts
from rlhfdoctor.trace.frames import Decoder
from rlhfdoctor.trace.run import find_runs
from tests.trace.test_archive import RUN, pack

ROOT = Path(__file__).resolve().parent.parent


def doctor(*args: object) -> Result:
    """The command with standard output and error together."""
    return CliRunner().invoke(main, [str(arg) for arg in args])


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """How often the frame of each sample was decoded, by its sequence and clock."""
    counts: Counter[int] = Counter()
    decode = Decoder.decode

    def counted(self: Decoder, frame: object) -> object:
        sample = decode(self, frame)  # type: ignore[arg-type]
        if sample is not None:
            counts[sample.wall_ns] += 1
        return sample

    monkeypatch.setattr(Decoder, "decode", counted)
    return counts


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file below a test's folder or the samples was opened to be read whole."""
    counts: Counter[str] = Counter()
    real = os.open

    def counted(file: object, flags: int, *args: Any, **kwargs: Any) -> int:
        counts[str(file)] += not flags & os.O_WRONLY
        return real(file, flags, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", counted)
    return counts


@pytest.mark.parametrize("form", ["html", "svg"])
def test_a_report_decodes_a_trace_once_for_the_verdict_and_once_for_the_picture(
    decoded: Counter[int], tmp_path: Path, form: str
) -> None:
    """Few samples whole, and a few columns of every sample."""
    if form == "svg":
        pytest.importorskip("matplotlib", reason="matplotlib comes with the extra pictures")
    assert doctor("report", RUN, "--out", tmp_path / f"x.{form}").exit_code == 1
    assert set(decoded.values()) == {2} and len(decoded) > 50


def test_an_analysis_decodes_a_trace_once_and_for_a_page_twice(decoded: Counter[int], tmp_path: Path) -> None:
    """The same for `analyze --format html`; without charts there is one reading."""
    assert doctor("analyze", RUN, "--format", "md", "--out", tmp_path / "x.md").exit_code == 1
    assert set(decoded.values()) == {1}
    assert doctor("analyze", RUN, "--format", "html", "--out", tmp_path / "x.html").exit_code == 1
    assert set(decoded.values()) == {3}


def test_a_comparison_decodes_a_trace_once(decoded: Counter[int]) -> None:
    """Each of the two runs."""
    compare([str(RUN)], [str(ROOT / "samples/recorded-sawtooth-healthy/run")])
    assert set(decoded.values()) == {1}


def test_a_suggestion_reads_once(opened: Counter[str], tmp_path: Path) -> None:
    """The estimate and the change that fits are computed from the same settings; a file that a script names is one more."""
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}')
    script = tmp_path / "launch.sh"
    script.write_text("accelerate launch my_grpo.py --model_name_or_path Qwen/Qwen2.5-72B --deepspeed ds.json\n")
    found = doctor(
        "estimate",
        script,
        "--framework",
        "trl==0.16.1",
        "--host-memory",
        "512G",
        "--gpu",
        "a100-80g",
        "--nodes",
        1,
        "--suggest",
    )
    assert "smallest change that fits" in found.output
    # opened to see whether it can be, then read
    assert {str(path): opened[str(path)] for path in (script, tmp_path / "ds.json")} == {
        str(script): 2,
        str(tmp_path / "ds.json"): 2,
    }


def test_compare_of_two_bundles(tmp_path: Path) -> None:
    """Two bundles are compared as their folders are."""
    healthy = ROOT / "samples/recorded-sawtooth-healthy/run"
    paths = [make_bundle([str(run)], tmp_path / f"{n}.tar.gz").path for n, run in enumerate((RUN, healthy))]
    folders, bundles = compare([str(RUN)], [str(healthy)]), compare([str(paths[0])], [str(paths[1])])
    assert len(folders.figures) > 4 and bundles.figures == folders.figures
    assert "neither run was recorded" not in doctor("compare", *paths).output


@pytest.mark.parametrize("ending", [".zip", ".tar.zst"])
def test_a_bundle_of_an_archive(tmp_path: Path, ending: str) -> None:
    """The trace in an archive goes into the bundle."""
    packed = pack(tmp_path / f"run{ending}")
    made = make_bundle([str(packed)], tmp_path / "b.tar.gz")
    with tarfile.open(made.path) as archive:
        assert any(name.endswith(".trace") for name in archive.getnames())
    assert made.same and made.after is not None and made.after.verdict == "cause"
    assert not [cut for cut in made.cut if "recorded run" in cut]


def test_charts_of_an_archive(tmp_path: Path) -> None:
    """`make_charts` and a session draw the same, of a folder and of an archive."""
    packed = str(pack(tmp_path / "run.zip"))
    with Session([packed]) as session:
        drawn = draw_charts(session.traces, make_incident(session))
    assert drawn and drawn == make_charts([packed], analyze([packed])) == make_charts([str(RUN)], analyze([str(RUN)]))


def test_an_archive_is_unpacked_no_longer_than_a_session(tmp_path: Path) -> None:
    """The folder goes when the session does, also where nothing could be read."""
    with Session([str(pack(tmp_path / "run.zip"))]) as session:
        (real,) = session.names
        assert find_runs(real)
    assert not Path(real).exists()


def test_configuration_that_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When all the time for configuration is used up, the rest is a gap; the shortest files were read before."""
    monkeypatch.setattr("rlhfdoctor.core.session._CONFIGURATION_S", 1e-6)
    (tmp_path / "a.sh").write_text("#" * 5000 + "\npython -m openrlhf.cli.train_ppo_ray --zero_stage 2\n")
    (tmp_path / "b.sh").write_text("python -m openrlhf.cli.train_ppo_ray --zero_stage 3\n")
    incident = analyze(str(tmp_path))
    assert [str(gap.what) for gap in incident.gaps if "configuration before it" in str(gap.why)] == [str(tmp_path / "a.sh")]


def test_configuration_of_too_many_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of all configuration has one bound: the shortest files count, the others are gaps."""
    monkeypatch.setattr("rlhfdoctor.core.session._MOST_SETTINGS", 5)
    (tmp_path / "a.sh").write_text("python -m openrlhf.cli.train_ppo_ray --zero_stage 3\n")
    for name in "bc":
        words = " ".join(f"--{name}{i} {i}" for i in range(6))
        (tmp_path / f"{name}.sh").write_text(f"python -m openrlhf.cli.train_ppo_ray {words}\n")
    with Session(str(tmp_path)) as session:
        assert [setting.spelled for setting in session.case.settings] == ["--zero_stage"]
        assert [str(gap.what) for gap in session.gaps if "more than 5 settings" in str(gap.why)] == [
            str(tmp_path / "b.sh"),
            str(tmp_path / "c.sh"),
        ]
