"""Many runs: a row each, what they cost, which ended alike."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor import Fleet, SourceError, analyze, analyze_each
from rlhfdoctor.cli.fleet import exit_code, form_of
from rlhfdoctor.core import fleet as judging
from rlhfdoctor.core.fleet import find_fingerprint, make_row
from rlhfdoctor.fleet import _MOST_ROWS, UNREADABLE, FleetRow, read_fleet
from rlhfdoctor.report.fleet import Names, next_command, render_html, render_markdown, summary

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = [str(ROOT / "samples" / name / "run") for name in ("lab-save-kill", "ray-healthy", "ray-memory-monitor", "lab-checkpoint-spike")]


def kill_of(pid: int, name: str = "ray::ActorModel", at: str = "Mon Mar  2 10:00:00 2026") -> str:
    """The kernel's line of a kill."""
    return (
        f"[{at}] Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:91234567kB, "
        f"anon-rss:7123{pid % 10000:04d}kB, file-rss:0kB, shmem-rss:0kB\n"
    )


def run_of(folder: Path, **files: str) -> str:
    """A run with these logs."""
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / f"{name}.log").write_text(text)
    return str(folder)


def error_of(text: str) -> str:
    """A traceback of a program."""
    return f'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    main()\n{text}\n'


def row(path: str, **given: Any) -> FleetRow:
    """A row that ended by a leak, unless given otherwise."""
    return FleetRow(**{"path": path, "verdict": "cause", "cause": "host-leak", "confidence": 0.9, **given})


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_say_what_an_analysis_of_each_run_says(workers: int) -> None:
    """In the order of the paths, here or by workers."""
    paths = [*SAMPLES, str(ROOT / "nowhere")]
    seen: list[str] = []
    found = analyze_each(paths, workers=workers, progress=lambda row: seen.append(row.path))
    assert seen == [row.path for row in found.rows] == paths
    for path, row in zip(SAMPLES, found.rows, strict=False):
        assert row == make_row(path, analyze([path])) or row.same_as is not None
        assert row.verdict == analyze([path]).verdict
    last = found.rows[-1]
    assert (last.verdict, last.fingerprint) == (UNREADABLE, None)
    assert "no such file or folder" in str(last.why)


def test_a_run_that_ends_its_worker_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be read without the reader's own death costs no other run its answer."""
    monkeypatch.setattr(judging, "_JUDGE", f"{__name__}:make_judge")
    found = analyze_each(["fine", "fatal", "fine too"], workers=1)
    assert [row.verdict for row in found.rows] == ["healthy", UNREADABLE, "healthy"]
    assert found.rows[1].why == "reading it ended the process that read it"


def make_judge(_reading: dict[str, Any]) -> Callable[[str, Callable[[int], None]], FleetRow]:
    """A worker's part, for the test above: its second run kills it."""

    def judge(path: str, _say: Callable[[int], None]) -> FleetRow:
        if path == "fatal":
            os.kill(os.getpid(), signal.SIGKILL)
        return row(path, verdict="healthy", cause=None, confidence=None)

    return judge


def test_the_same_end_has_the_same_fingerprint(tmp_path: Path) -> None:
    """Other pids, sizes, times and folders do not count; another cause or another error does."""
    logs = {
        "kill-1": {"dmesg": kill_of(4711)},
        "kill-2": {"dmesg": kill_of(815, at="Tue Mar 10 17:20:01 2026")},
        "error-1": {"train": error_of("KeyError: 'labels_17'")},
        "error-2": {"train": error_of("KeyError: 'labels_4'")},
        "error-3": {"train": error_of("AttributeError: 'NoneType' object has no attribute 'shape'")},
        "fine": {"driver": "step:1 - actor/lr:0.0\nTraining finished\n"},
    }
    found = {name: find_fingerprint(analyze([run_of(tmp_path / name, **files)])) for name, files in logs.items()}
    assert found["kill-1"] == found["kill-2"] is not None
    assert found["error-1"] == found["error-2"] is not None
    assert len({found["kill-1"], found["error-1"], found["error-3"]}) == 3
    assert found["fine"] is None


def test_alike_earlier_or_in_the_fleet_before() -> None:
    """Each row refers to the first one that ended alike, and none to itself."""
    before = [row("old/a", fingerprint="1"), row("old/b", fingerprint=None)]
    rows = [row("a", fingerprint="1"), row("b", fingerprint="2"), row("c", fingerprint="2"), row("d"), row("old/a", fingerprint="1")]
    found = Fleet(tuple(rows)).after(before)
    assert [one.same_as for one in found.rows] == ["old/a", None, "b", None, None]


def test_hours_are_of_the_run(tmp_path: Path) -> None:
    """From its first stamp to its end, for each host; a kernel log begins with the node, and stamps years apart say nothing."""
    ray = "(Actor pid=12, ip=10.0.0.{}) 2026-03-02 {}:00:00,000 INFO step:1 - actor/lr:0.0\n"
    lines = ray.format(1, "08") + ray.format(2, "09") + ray.format(1, "10")
    job = run_of(tmp_path / "job", train=lines, dmesg=kill_of(12, at="Mon Mar  2 11:00:00 2026"))
    (found,) = analyze_each([job]).rows
    assert found.began_s is not None and found.ended_s is not None
    assert (found.hosts_count, round((found.ended_s - found.began_s) / 3600)) == (2, 3)
    assert found.node_hours == pytest.approx(6.0, abs=0.1)
    far = run_of(tmp_path / "far", train=lines.replace("2026-03-02 08", "2024-03-02 08") + error_of("ValueError: x"))
    (found,) = analyze_each([far]).rows
    assert (found.began_s, found.node_hours) == (None, None)


def test_groups_by_cost() -> None:
    """Decided causes first, the costliest of them first; undecided runs are one group."""
    rows = [
        row("a", cause="host-leak", node_hours=1.0),
        row("b", cause="host-pinned-offload", node_hours=5.0),
        row("c", cause="host-leak", node_hours=None),
        row("d", verdict="undecided", cause="host-leak", node_hours=90.0),
        row("e", verdict="undecided", cause="comm-straggler", node_hours=1.0),
        row("f", verdict="healthy", cause=None, node_hours=200.0),
    ]
    fleet = Fleet(tuple(rows))
    assert [(group.verdict, group.cause, len(group.rows), group.node_hours) for group in fleet.groups] == [
        ("cause", "host-pinned-offload", 1, 5.0),
        ("cause", "host-leak", 2, 1.0),
        ("undecided", None, 2, 91.0),
        ("healthy", None, 1, 200.0),
    ]
    assert str(summary(fleet)).endswith("the runs that died had taken 97.0 node hours (unknown of 1 of them)")
    assert next_command(fleet) == "doctor analyze d"


@pytest.mark.parametrize("name", ["a b", "it's", "$(touch x)", "a;b", "-rf", "new\nline", "\x1b[31mred"])
def test_the_command_is_one_of_three_words(name: str) -> None:
    """Whatever the run's folder is called, a shell reads a path, and nothing that it would run."""
    command = next_command(Fleet((row(name),)))
    assert command is not None and command.isprintable()
    words = shlex.split(command)
    assert words[:2] == ["doctor", "analyze"] and len(words) == 3 and not words[2].startswith("-")


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_written_and_read_back(tmp_path: Path, form: str) -> None:
    """A fleet comes back as it was."""
    if form == "parquet":
        pytest.importorskip("polars", reason="polars comes with the extra report")
    found = analyze_each(SAMPLES)
    target = tmp_path / f"fleet.{form}"
    target.write_bytes(found.to_bytes(form))
    assert read_fleet(target) == found


ODD = {"bytes": "runs/bad\udcff", "bell": "runs/a\x1b]0;t\x07\x9b5m\u202eb", "secret": "runs/hf_abcdefghijklmnopqrstuvwxyz"}


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
@pytest.mark.parametrize("path", ODD.values(), ids=ODD)
def test_no_folder_name_spoils_what_is_written(tmp_path: Path, form: str, path: str) -> None:
    """Whatever a run's folder is called, the file can be written, printed and handed on; the fleet after it knows the run."""
    if form == "parquet":
        pytest.importorskip("polars", reason="polars comes with the extra report")
    fleet = Fleet((row("runs/fine", fingerprint="1"), row(path, fingerprint="2", why=f"{path}: no"), row("runs/c", same_as=path)))
    data = fleet.to_bytes(form)
    assert b"abcdefghijklmnop" not in data and (form == "parquet" or data.decode().replace("\n", "").isprintable())
    if form == "csv":
        return
    (tmp_path / "fleet").write_bytes(data)
    before = read_fleet(tmp_path / "fleet")
    assert len(before.rows) == 3 and before.rows[1].path == before.rows[2].same_as != path
    again = Fleet((row(path, fingerprint="2"), row("runs/d", fingerprint="2"))).after(before.rows)
    assert [one.same_as for one in again.rows] == [None, before.rows[1].path]


def test_frame() -> None:
    """One row a run, typed, also where all of a column is unknown."""
    polars = pytest.importorskip("polars", reason="polars comes with the extra report")
    frame = Fleet((row("a", node_hours=2.0), row("b"))).to_polars()
    assert frame.height == 2 and frame["node_hours"].to_list() == [2.0, None]
    assert (frame.schema["step"], frame.schema["why"], frame.schema["began_s"]) == (polars.Int64, polars.String, polars.Float64)


@pytest.mark.parametrize("data", [b"", b"\0\1\2", b"{}\n", b'{"path": 3, "verdict": "cause"}\n', b"[" * 100_000, b"PAR1 no", b"\xff\xfe"])
def test_no_fleet_is_a_message(tmp_path: Path, data: bytes) -> None:
    """Any bytes: an error that says what to give."""
    if data.startswith(b"PAR1"):
        pytest.importorskip("polars", reason="polars comes with the extra report")
    target = tmp_path / "before.jsonl"
    target.write_bytes(data)
    with pytest.raises(SourceError, match="no fleet"):
        read_fleet(target)
    with pytest.raises(SourceError, match="No such file"):
        read_fleet(tmp_path / "nowhere")


@pytest.mark.parametrize("kind", ["pipe", "holes", "lines", "rows", "long"])
def test_what_is_no_file_of_a_fleets_size_is_not_read(tmp_path: Path, kind: str) -> None:
    """Nothing waits for a pipe, and no file is read or unpacked without an end."""
    target = tmp_path / "fleet"
    if kind == "pipe":
        os.mkfifo(target)
    elif kind == "holes":
        target.touch()
        os.truncate(target, 1 << 40)
    elif kind == "lines":
        target.write_bytes(b"\n" * (_MOST_ROWS + 1))
    else:
        polars = pytest.importorskip("polars", reason="polars comes with the extra report")
        count, name = (_MOST_ROWS + 1, "a") if kind == "rows" else (600, "a" * (1 << 20))
        text = polars.repeat(name, count, eager=True, dtype=polars.String)
        polars.DataFrame({"path": text, "verdict": text}).write_parquet(target, statistics=False)
        assert target.stat().st_size < 1 << 16
    with pytest.raises(SourceError, match={"pipe": "is no regular file", "lines": "too large for a fleet"}.get(kind, "no fleet")):
        read_fleet(target)


def test_names_without_what_they_share() -> None:
    """Folders above and below what differs are said once."""
    names = Names(Fleet((row("runs/a/logs"), row("runs/b/logs"))))
    assert (names.pattern, [names.short(row(path)) for path in ("runs/a/logs", "runs/b/logs")]) == ("runs/*/logs", ["a", "b"])
    names = Names(Fleet((row("a"), row("b/c"))))
    assert (names.pattern, names.short(row("b/c"))) == ("", "b/c")
    names = Names(Fleet((row("runs/a"),)))
    assert (names.pattern, names.short(row("runs/a"))) == ("runs/*", "a")
    assert Names(Fleet(())).pattern == ""


def test_page_and_markdown_take_no_markup_from_a_run() -> None:
    """Names of folders and errors are text; a reference leads to its row."""
    evil = '<script>alert("x")</script>|`[a](javascript:b)'
    rows = (row(f"runs/{evil}", fingerprint="1"), row("runs/b", fingerprint="1"), row("runs/c", verdict=UNREADABLE, cause=None, why=evil))
    fleet = Fleet(rows).after(())
    page = render_html(fleet, made_s=1.7e9, version="1.2.3")
    assert "<script" not in page and '<a href="#run-1">#1</a>' in page and 'id="run-1"' in page
    lines = render_markdown(fleet).splitlines()
    assert len({line.replace("\\|", "").count("|") for line in lines if line.startswith("| ")}) == 2  # the two tables
    assert "\\[a\\]" in "\n".join(lines)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        (["healthy"], 0),
        (["healthy", "cause"], 1),
        (["undecided", UNREADABLE], 1),
        (["inconclusive", "healthy"], 3),
        ([UNREADABLE, "healthy"], 3),
        ([UNREADABLE], 2),
    ],
)
def test_exit_codes(verdicts: list[str], code: int) -> None:
    """The worst of the runs' own."""
    assert exit_code(Fleet(tuple(row(str(number), verdict=verdict) for number, verdict in enumerate(verdicts)))) == code


@pytest.mark.parametrize(
    ("form", "out", "chosen"),
    [
        ("text", None, "text"),
        ("json", None, "jsonl"),
        ("text", "x.PARQUET", "parquet"),
        ("text", "x.csv", "csv"),
        ("text", "x.json", "jsonl"),
        ("text", "x.html", "html"),
        ("md", "x.txt", "md"),
        ("text", "x.txt", "text"),
    ],
)
def test_the_ending_chooses_the_format(form: str, out: str | None, chosen: str) -> None:
    """Where --format does not."""
    assert form_of(form, out) == chosen


def test_command(doctor: Callable[..., Any], tmp_path: Path) -> None:
    """A table, and JSON lines that the next week's command takes."""
    result = doctor("analyze", "--each", *SAMPLES, "--lang", "en")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0].startswith("4 runs: 3 with a cause, 1 healthy; ")
    assert any(line.endswith(" #1") and "lab-checkpoint-spike" in line for line in lines)
    assert lines[-1].startswith("next: doctor analyze ")
    assert doctor("analyze", "--each", *SAMPLES, "--out", tmp_path / "week.jsonl").exit_code == 1
    found = [json.loads(line) for line in (tmp_path / "week.jsonl").read_text().splitlines()]
    assert [item["path"] for item in found] == SAMPLES
    run = tmp_path / "again"
    run.symlink_to(SAMPLES[0])
    again = doctor("analyze", "--each", run, "--before", tmp_path / "week.jsonl", "--format", "json")
    assert json.loads(again.stdout)["same_as"] == SAMPLES[0]
    page = doctor("analyze", "--each", *SAMPLES, "--out", tmp_path / "week.html")
    assert page.exit_code == 1 and "<h1>4 " in (tmp_path / "week.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--each", "-"], "standard input can be only one run"),
        (["--before", "x.jsonl", "x"], "--before FILE belongs to --each"),
        (["--each", "x", "--before", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["--each", "x", "--since", "soon"], "write a time such as"),
    ],
)
def test_wrong_use(doctor: Callable[..., Any], words: list[str], says: str) -> None:
    """One line, exit code 2."""
    result = doctor("analyze", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert says in result.stderr and "Traceback" not in result.stderr


def test_ctrl_c_gives_the_rows_so_far(tmp_path: Path) -> None:
    """A run that can never be read to its end: those before it are shown, and how many they are."""
    first = run_of(tmp_path / "first", dmesg=kill_of(4711))
    endless = tmp_path / "endless" / "train.log"
    endless.parent.mkdir()
    os.mkfifo(endless)
    words = [sys.executable, "-m", "rlhfdoctor", "analyze", "--each", first, str(endless), "--format", "json"]
    doctor = subprocess.Popen(["taskset", "-c", "0", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with endless.open("wb"):  # returns when the doctor has opened it: the first run is judged
        doctor.send_signal(signal.SIGINT)
        out, err = (text.decode() for text in doctor.communicate(timeout=120))
    assert doctor.returncode == 1, err
    assert [json.loads(line)["path"] for line in out.splitlines()] == [first]
    assert "stopped by Ctrl-C after 1 of 2 runs" in err and "Traceback" not in err
