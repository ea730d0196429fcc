"""`doctor compare`: figures of two runs side by side, and what is only noise."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from rlhfdoctor.comparison import Figure
from rlhfdoctor.core.comparable import look_at
from rlhfdoctor.core.compare import compare
from rlhfdoctor.core.diagnose import make_incident
from rlhfdoctor.core.session import Session
from rlhfdoctor.report.comparison import verdict
from rlhfdoctor.units import MIB
from tests.record.build import steps, write_run

Doctor = Callable[..., Result]
SAMPLES = Path(__file__).resolve().parent.parent / "samples"
WOBBLE = (0, 40, -30, 25, -45, 10)


def record(folder: Path, *, base: float, rise: float = 0.0, wobble: bool = True, every_s: float = 10.0) -> Path:
    """Twelve steps of ten samples whose actor wobbles around a level, or climbs."""

    def anon(second: int) -> float:
        step = int(second // every_s)
        return (
            base
            + rise * step
            + (WOBBLE[step % len(WOBBLE)] if wobble else 0)
            + (200 if second % every_s > every_s / 2 else 0)
        )

    return write_run(
        folder, int(12 * every_s), anon={"actor": anon, "driver": lambda _: 500.0}, events=steps(12, every_s)
    )


def figures(one: Path, two: Path) -> dict[str, Figure]:
    return {str(figure.name): figure for figure in compare([str(one)], [str(two)]).figures}


def test_the_same_run_twice(tmp_path: Path) -> None:
    """Nothing differs, and every figure with noise is within it."""
    run = record(tmp_path / "a", base=4000)
    found = figures(run, run)
    assert {name for name, f in found.items() if f.before != f.after} == set()
    assert found["steps begun"].before == 11, "the load before the first step is left out"


def test_wobble_is_noise_and_a_gain_is_none(tmp_path: Path) -> None:
    """30 MiB among steps that wobble by 45 are noise; 900 MiB are not."""
    base, near, far = (record(tmp_path / name, base=size) for name, size in (("a", 4000), ("b", 4030), ("c", 3100)))
    close, gain = figures(base, near)["all processes, at the peak"], figures(base, far)["all processes, at the peak"]
    assert (close.within_noise, gain.within_noise) == (True, False)
    assert gain.before is not None and gain.after is not None and gain.after - gain.before == -900 * MIB


def test_a_slope_that_a_patch_took_away(tmp_path: Path) -> None:
    """Growth of the peaks a step, fitted over the steps behind the first."""
    leak, cured = record(tmp_path / "a", base=4000, rise=100), record(tmp_path / "b", base=4000)
    growth = figures(leak, cured)["growth of the peaks"]
    assert growth.before == pytest.approx(100 * MIB, rel=0.1) and abs(growth.after or 0) < 10 * MIB
    assert growth.within_noise is False


def test_step_time(tmp_path: Path) -> None:
    """The median distance of steps, with the spread among them."""
    found = figures(record(tmp_path / "a", base=4000), record(tmp_path / "b", base=4000, every_s=14.0))[
        "time of a step"
    ]
    assert (found.before, found.after, found.within_noise) == (10.0, 14.0, False)


def test_runs_without_steps(tmp_path: Path) -> None:
    """A run that never began a step has its peak, and no figure of steps."""
    run = write_run(tmp_path / "a", 30, anon={"driver": lambda _: 500.0})
    found = figures(run, run)
    assert found["all processes, at the peak"].before is not None
    assert found["growth of the peaks"].before is None


def test_what_became_of_them() -> None:
    """One died and one ended well; settings that differ are named as they are spelled."""
    died, well = str(SAMPLES / "lab-pinned-start/run"), str(SAMPLES / "lab-pinned-start-cured/run")
    assert str(verdict(compare([died], [well]))) == "the second run survived what the first one died of"
    assert str(verdict(compare([well], [died]))) == "the first run ended well, the second did not"
    assert str(verdict(compare([died], [died]))) == "both died, of the same cause"
    sawtooth, close = (str(SAMPLES / name / "run") for name in ("lab-healthy-sawtooth", "lab-healthy-close"))
    assert "--mem" in [spelled for spelled, _, _ in compare([close], [sawtooth]).settings]


def test_command(doctor: Doctor, tmp_path: Path) -> None:
    """Exit 1 when the second run ended badly, 0 when it ended well, 2 when there is nothing to read."""
    died, well = SAMPLES / "lab-pinned-start/run", SAMPLES / "lab-pinned-start-cured/run"
    assert [
        doctor("compare", a, b).exit_code for a, b in ((died, well), (well, died), (well, tmp_path / "nowhere"))
    ] == [0, 1, 2]
    screen = doctor("compare", died, well).stdout
    assert screen.startswith("the second run survived") and "all processes, at the peak" in screen
    found = json.loads(doctor("compare", died, well, "--format", "json").stdout)
    assert (found["schema"], [run["verdict"] for run in found["runs"]]) == (
        "rlhfdoctor.comparison/1",
        ["cause", "healthy"],
    )


def test_logs_without_a_trace_have_verdicts_only(doctor: Doctor) -> None:
    """It says that there are no figures, and why."""
    result = doctor("compare", SAMPLES / "ray-healthy/run", SAMPLES / "ray-cgroup-kill/run")
    assert (result.exit_code, "no figures: neither run was recorded" in result.stdout) == (1, True)


NOT_SHOWN = "these runs do not show whether a change helped: "
OPENRLHF = "openrlhf-save-kill"
PAIRS = {
    "stopped-earlier": ("recorded-leak", "recorded-sawtooth-healthy", "the second run came to step 12 only"),
    "died-earlier-of-something-else": ("recorded-leak", "recorded-hang", "came to step 14 only, the first one died at step 17"),
    "another-framework": ("lab-pinned-start", "openrlhf-healthy", "different frameworks: rlhfdoctor and openrlhf"),
    "another-model": (OPENRLHF, "openrlhf-healthy", "different models: --pretrain is /data/models/Baichuan2-13B-Chat"),
    "other-data": ("lab-driver-leak", "lab-healthy-close", "that no patch of the first run changes: data.max_response_length"),
    "nothing-known": ("ray-cgroup-kill", "ray-healthy", "nothing shows that they are runs of the same job"),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_what_cannot_be_compared_is_not_judged(pair: str, doctor: Doctor) -> None:
    """It says so in text and JSON, with the figures all the same; the exit status is the second run's."""
    one, two, why = PAIRS[pair]
    words = ("compare", SAMPLES / one / "run", SAMPLES / two / "run")
    text, found = doctor(*words), json.loads(doctor(*words, "--format", "json").stdout)
    said = " ".join(text.stdout.split())
    assert (said.startswith(NOT_SHOWN), why in said) == (True, True), said
    assert (found["comparable"], len(found["doubts"]) > 0, found["says"].startswith(NOT_SHOWN)) == (False, True, True)
    assert text.exit_code == (0 if found["runs"][1]["verdict"] == "healthy" else 1)
    assert bool(found["figures"]) is (one.startswith(("lab-", "recorded-")))


def test_a_run_of_its_own_job_is_judged(doctor: Doctor) -> None:
    """The setting that a patch of the first run changes makes no other job."""
    words = ("compare", SAMPLES / "lab-pinned-start/run", SAMPLES / "lab-pinned-start-cured/run")
    found = json.loads(doctor(*words, "--format", "json").stdout)
    assert (found["comparable"], found["doubts"], len(found["settings"])) == (True, [], 1)


def test_the_first_run_ended_well() -> None:
    """There is nothing to help: what became of both is said, and what differs."""
    well, died = str(SAMPLES / "lab-healthy-close/run"), str(SAMPLES / "lab-driver-leak/run")
    found = compare([well], [died])
    assert str(verdict(found)) == "the first run ended well, the second did not"
    assert [str(doubt) for doubt in found.doubts] != []


def test_chinese(doctor: Doctor) -> None:
    """The doubts are put into Chinese, too."""
    said = doctor("compare", SAMPLES / "recorded-leak/run", SAMPLES / "recorded-sawtooth-healthy/run", "--lang", "zh").stdout
    assert said.startswith("无法由这两次运行判断改动是否有效：第二次运行只到第 12 步")


def test_patched_since_the_first_run(tmp_path: Path, doctor: Doctor) -> None:
    """What --write has changed in the files of the first run is no other job."""
    run = Path(shutil.copytree(SAMPLES / "lab-generate-desync/run", tmp_path / "before"))
    assert doctor("patch", run, "--write", "--consent", "comm-zero3-generate-desync").exit_code == 0
    with Session([str(run)]) as session:
        patched = look_at(session, make_incident(session)).patched
    assert patched == {"synced_gpus", "zero_stage"}
