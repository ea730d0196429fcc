"""The answer on one screen: 24 lines of 80 columns, whole words, and a command that can be run as its last line."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rlhfdoctor import analyze
from rlhfdoctor.cli import main
from rlhfdoctor.cli.incident import render_incident
from rlhfdoctor.i18n.language import load_language
from rlhfdoctor.i18n.message import say
from rlhfdoctor.report import markdown
from rlhfdoctor.report.answer import ROWS, Block, fitted
from rlhfdoctor.report.next_step import next_command, next_step
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.wrap import wrapped
from rlhfdoctor.types import Finding, Incident, Patch

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*/run"))
CASES = sorted((ROOT / "rules").glob("*/fires/*"))
TORN = re.compile(r"\[[a-z]*$|^ *(safe|consent|show)\]| ->$|^ *->| --\w*_\w*$|^ *([KMGT]iB|%)")
"""A bracket, a change, an option without its value, a unit without its number."""
COMMANDS = ("doctor patch ", "doctor report ", "doctor rules ", "doctor analyze ", "dmesg -T > dmesg.txt && ")


def command_of(screen: str) -> str:
    """The last line, put together where the shell reads on behind a backslash."""
    return screen.replace(" \\\n", "").rstrip("\n").rpartition("\n")[2].strip()


@pytest.mark.parametrize(
    "runs",
    [
        pytest.param(SAMPLES[::2], id="samples 1"),
        pytest.param(SAMPLES[1::2], id="samples 2"),
        pytest.param(CASES[::2], id="rules 1", marks=pytest.mark.sweep),
        pytest.param(CASES[1::2], id="rules 2", marks=pytest.mark.sweep),
    ],
)
def test_screen(runs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every sample in both languages: it fits, nothing that belongs together is torn, a command is last."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")
    for run in runs:
        incident = analyze([str(run.relative_to(ROOT))])
        for language in ("en", "zh"):
            monkeypatch.setenv("LC_ALL", f"{language}.UTF-8")
            screen = render_incident(incident, "text", False, False)
            lines = screen.splitlines()
            assert len(lines) <= ROWS and max(map(cell_len, lines)) <= 80, f"{run}\n{screen}"
            assert command_of(screen).startswith(COMMANDS), f"{run}\n{screen}"
            shlex.split(command_of(screen))
            torn = [line for line in lines if TORN.search(line) and not line.startswith("   | ")]
            assert not torn, f"{run}\n{screen}"


@pytest.mark.parametrize("form", ["text", "md", "json"])
def test_no_empty_values(form: str) -> None:
    """What is not known is left out: no line None of a folder, no `null` as the value to set."""
    for name in ("lab-pinned-start", "openrlhf-save-kill", "openrlhf-zero3-generate"):
        shown = CliRunner().invoke(main, ["analyze", str(ROOT / "samples" / name / "run"), "--format", form]).output
        assert not re.search(r"run:None|(->|→) `?(null|None)|(->|→) *\[", shown), shown


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("one two", 20, ["one two"]),
        ("set --mem 500g -> 625g  [consent]", 21, ["set", "--mem 500g -> 625g", "[consent]"]),
        ("it held 23.5 GiB, and", 13, ["it held", "23.5 GiB, and"]),
        ("内存上限（500 GiB）已满", 12, ["内存上限", "（500 GiB）", "已满"]),
        ("x" * 25, 10, ["x" * 10, "x" * 10, "x" * 5]),
        ("", 10, [""]),
    ],
)
def test_wrapped(text: str, width: int, lines: list[str]) -> None:
    """Options with their values, sizes and changes stay whole; what is wider than a line is cut."""
    assert [text[begin:end] for begin, end in wrapped(text, width)] == lines


def test_fitted() -> None:
    """Blocks of rank 0 always; of the others the lowest ranks that fit, all in their order."""
    blocks = [Block([Text(name)] * size, rank) for name, size, rank in (("a", 2, 0), ("b", 3, 2), ("c", 1, 1))]
    assert [block.lines[0].plain for block in fitted(blocks, 3)] == ["a", "c"]
    assert [block.lines[0].plain for block in fitted(blocks, 6)] == ["a", "b", "c"]


def incident(verdict: str, *patches: Patch, sources: tuple[str, ...] = ("my run",)) -> Incident:
    """One finding with these patches."""
    finding = Finding(cause="host-leak", title=say("x"), confidence=0.9, summary=say("x"), patches=patches)
    return Incident(sources=sources, verdict=verdict, death=None, framework=None, findings=(finding,))  # type: ignore[arg-type]


SAFE = Patch(setting="a", spelled="a", file="c.yaml", line=1, before="1", after="2", safety="safe", diff="-1\n+2\n")


@pytest.mark.parametrize(
    ("found", "command"),
    [
        (incident("cause", SAFE), "doctor patch 'my run' --write"),
        (incident("cause", replace(SAFE, safety="consent")), "doctor patch 'my run' --write --consent host-leak"),
        (incident("cause", replace(SAFE, file="a.zip!c.yaml")), "doctor patch 'my run'"),
        (incident("cause", replace(SAFE, safety="show")), "doctor rules explain host-leak"),
        (incident("cause", SAFE, sources=("-",)), "doctor rules explain host-leak"),
        (incident("inconclusive"), "dmesg -T > dmesg.txt && doctor analyze 'my run' dmesg.txt"),
        (incident("healthy"), "doctor analyze 'my run' --all"),
        (incident("healthy", sources=("-",)), "doctor rules list"),
    ],
)
def test_next_command(found: Incident, command: str) -> None:
    """The command writes what may be written, and else explains or asks for what is lacking."""
    assert " ".join(next_command(found)) == command
    assert command in markdown.render(found)


def test_long_command() -> None:
    """A command of more than a line can be copied as it stands."""
    console = Console(file=io.StringIO(), width=40)
    lines = [line.plain for line in Page(console, load_language("en")).command(["doctor", "patch", "a" * 30, "--x y"])]
    assert lines == ["   doctor patch \\", f"     {'a' * 30} \\", "     --x y"]


@pytest.mark.parametrize(("columns", "widest"), [("60", 60), ("20", 40), ("9999", 160), ("many", 160), ("", 160)])
def test_columns(columns: str, widest: int) -> None:
    """COLUMNS says how wide a page is in a pipe; nonsense is ignored."""
    path = str(ROOT / "samples" / "lab-pinned-start" / "run")
    lines = CliRunner().invoke(main, ["analyze", path], env={"COLUMNS": columns}).output.splitlines()
    assert widest - 30 < max(map(cell_len, lines[:-3])) <= widest


def test_the_next_command_reads_the_run_as_this_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options of the command line are repeated where the next command takes them; those of a project file stand in it."""
    monkeypatch.chdir(tmp_path)
    run = ROOT / "samples" / "openrlhf-save-kill" / "run"
    (tmp_path / "my config.yaml").write_text("trainer: {}\n")
    (tmp_path / "rlhfdoctor.toml").write_text('framework = "openrlhf==0.5.4"\n')
    given = ("--config", "my config.yaml", "--since", "2020-01-01")
    screen = CliRunner().invoke(main, ["analyze", str(run), *given]).output
    assert shlex.split(command_of(screen))[:2] == ["doctor", "patch"]
    assert all(word in shlex.split(command_of(screen)) for word in given)
    assert "--framework" not in screen.rpartition("doctor patch")[2]
    proposed = CliRunner().invoke(main, shlex.split(command_of(screen).replace("--write", ""))[1:])
    assert proposed.exit_code == 1 and proposed.stdout.startswith("---"), proposed.output


def test_a_healthy_run_with_a_full_disk() -> None:
    """Nothing died, and something is to be done all the same; where nothing is shown, nothing is."""
    warned = analyze(ROOT / "samples" / "ray-disk-warning" / "run")
    assert warned.verdict == "healthy" and "free or enlarge the disk" in str(next_step(warned))
    assert str(next_step(replace(warned, findings=()))) == "nothing has to be done"
