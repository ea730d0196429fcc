"""Logs, dumps, configuration and folders that cost far more than they are, or take the verdict along."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rlhfdoctor.trace.read import find_nodes, is_run
from tests.attacks import build
from tests.attacks.build import KILLER, MIB
from tests.attacks.conftest import Doctor
from tests.attacks.run import PEAK_MIB
from tests.record.build import write_run

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of another user")
OTHER_UID = 65534


def test_pickle_that_reserves_memory(tmp_path: Path, analyze: Doctor) -> None:
    """Row 4: a 13-byte dump that asks for an array of 2 GiB is a gap, and nothing is reserved."""
    good = build.good_log(tmp_path / "run")
    dump = good.with_name("nccl_trace_rank_0")
    dump.write_bytes(b"\x80\x05\x96" + struct.pack("<Q", 2 << 30) + b"a.")
    done = analyze(good.parent).check()
    assert (done.killer, done.gap(dump)) == (KILLER, True)


@pytest.mark.parametrize("data", [build.colliding_keys(60_000), build.doubled_key(60)], ids=["colliding", "doubled"])
def test_pickle_with_slow_keys(tmp_path: Path, analyze: Doctor, data: bytes) -> None:
    """Rows 32 to 42: keys whose hashes collide, or take for ever, are a gap."""
    good = build.good_log(tmp_path / "run")
    dump = good.with_name("nccl_trace_rank_0")
    dump.write_bytes(data)
    done = analyze(good.parent).check()
    assert (done.killer, done.gap(dump)) == (KILLER, True)


def test_bundle_of_shared_lists(tmp_path: Path, attack: Doctor) -> None:
    """Row 11: a dump of ten lists that are shared ten times each is counted before it is written, and left out."""
    good = build.good_log(tmp_path / "run")
    good.with_name("nccl_trace_rank_0").write_bytes(build.shared_lists(10, 10))
    assert pickle.loads(build.shared_lists(2, 2))["entries"][0]["frames"] == [[1, 1], [1, 1]]
    archive = tmp_path / "out.tar.gz"
    attack("bundle", good.parent, "--out", archive).check((0, 1))
    assert archive.exists()


@pytest.mark.parametrize("text", ["? ", "- ? ", "? - "])
def test_nested_yaml_keys(tmp_path: Path, analyze: Doctor, text: str) -> None:
    """Row 18: keys and lists nested 50,000 deep are a gap, not the end of the process."""
    good = build.good_log(tmp_path / "run")
    evil = good.with_name("evil.yaml")
    evil.write_text(text * (100_000 // len(text)))
    done = analyze(good.parent).check()
    assert (done.killer, done.gap(evil)) == (KILLER, True)


NUMBERS = {
    "percent": "[INFO] [utils.py:838:see_memory_usage] CPU Virtual Memory:  used = 1.2.3 GB, percent = 1.2.3%",
    "threshold": "OOM kill reason: Memory usage 213B exceeded threshold of 202B (.% of 252B limit)",
    "rank": f"[Rank {'9' * 5000}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800001 milliseconds before timing out.",
    "rank of a store": "RuntimeError: Timed out initializing process group in store based barrier on rank: "
    + "9" * 5000,
}


@pytest.mark.parametrize("name", NUMBERS)
def test_odd_numbers(tmp_path: Path, analyze: Doctor, name: str) -> None:
    """Row 19: a number that is none is a field without a value; the log beside it keeps its verdict."""
    good = build.good_log(tmp_path / "run")
    good.with_name("odd.log").write_text(NUMBERS[name] + "\n")
    assert analyze(good.parent).check((1,)).killer is not None


DIGITS, BLANKS = b"9" * 60_000, b" " * 60_000
SLOW = {
    "kernel.ram": DIGITS + b"~ 7 pages RAM\n",
    "kernel.swap": b"Free swap" + BLANKS + b"~ Free swap  = 7kB\n",
    "ray.memory_row": DIGITS + b"~ 91085\t24.99\tray::f\n",
    "docker.exit": BLANKS + b'~ "ExitCode": 137,\n',
    "shell.killed": BLANKS + b"~ run.sh: line 61:  30418 Killed                  python3 main.py\n",
    "phase.step": b"(main_task pid=40817) step:" + DIGITS + b"~ step:1 - response_length/mean:612.402\n",
    "config.command": BLANKS + b"~ python3 -m verl.trainer.main_ppo data.train_batch_size=256\n",
}
"""A line that an expression matches late, and would match from each of 60,000 places before. Of the release that was
attacked the first three are slow; the others have other expressions since then."""


@pytest.mark.parametrize("name", SLOW)
def test_slow_expressions(tmp_path: Path, analyze: Doctor, name: str) -> None:
    """Row 28: a MiB of lines of 60,000 digits or blanks takes seconds, not minutes."""
    good = build.good_log(tmp_path / "run")
    good.with_name("worker.log").write_bytes(SLOW[name] * (MIB // 60_000))
    assert analyze(good.parent).check((1,)).killer is not None


def test_slow_redaction(tmp_path: Path, attack: Doctor) -> None:
    """Row 29: a call that might hold a key, and 8,000 blanks, are redacted in seconds."""
    good = build.good_log(tmp_path / "run")
    good.with_name("train.log").write_text("wandb.login(" + " " * 8000 + "\n")
    attack("bundle", good.parent, "--out", tmp_path / "out.tar.gz").check((0,))


def nest(folder: Path, depth: int) -> None:
    """Folders within each other; a path of them all would be too long for the kernel."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=handle)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)


def test_nested_folders(tmp_path: Path, analyze: Doctor) -> None:
    """Row 22: 5,000 nested folders end at some depth with a gap; the log beside them keeps its verdict."""
    good = build.good_log(tmp_path / "run")
    nest(good.parent, 5000)
    done = analyze(good.parent).check()
    assert (done.killer, done.gap(good.parent / "d")) == (KILLER, True)


def test_nested_folders_of_a_run(tmp_path: Path, analyze: Doctor) -> None:
    """Row 22: the same below the logs of a recorded run."""
    run = build.good_run(tmp_path / "run")
    nest(run / "logs", 5000)
    done = analyze(run).check()
    assert (done.killer, done.gap(run / "logs" / "d")) == (build.RUN_KILLER, True)


def test_link_to_the_root_folder(tmp_path: Path, analyze: Doctor) -> None:
    """Rows 32 to 42: a link that leads out of the folder to `/` does not make the whole machine a source."""
    good = build.good_log(tmp_path / "run")
    link = good.with_name("all")
    link.symlink_to("/")
    done = analyze(good.parent).check()
    assert (done.killer, done.gap(link)) == (KILLER, True)


@AS_ROOT
def test_foreign_pattern_cache(tmp_path: Path, attack: Doctor) -> None:
    """Rows 32 to 42: compiled patterns that another user could have written are not believed."""
    hyperscan = pytest.importorskip("hyperscan")
    good, cache = build.good_log(tmp_path / "run"), tmp_path / "cache"
    words = ("analyze", good.parent, "--format", "json")
    assert attack(*words, XDG_CACHE_HOME=str(cache)).check().killer == KILLER
    blind = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    blind.compile(expressions=[b"never said in a log"], ids=[0], elements=1, flags=[0])
    kept = [path for path in cache.rglob("*") if path.is_file()]
    assert kept, "patterns were compiled"
    for path in kept:
        path.write_bytes(hyperscan.dumpb(blind))
        os.chown(path, OTHER_UID, OTHER_UID)
    assert attack(*words, XDG_CACHE_HOME=str(cache)).check().killer == KILLER


def test_half_a_million_hits(tmp_path: Path, analyze: Doctor) -> None:
    """Rows 32 to 42: 500,000 lines that all say something are read in bounded memory and time."""
    good = build.good_log(tmp_path / "run")
    good.with_name("driver.log").write_bytes(b"ConnectionResetError: [Errno 104] Connection reset by peer\n" * 500_000)
    done = analyze(good.parent).check()
    assert done.killer is not None


def test_report_on_a_full_disk(tmp_path: Path, attack: Doctor) -> None:
    """Rows 32 to 42: where the disk is full in the middle of a report, the one of before is still whole."""
    good, out = build.good_log(tmp_path / "run"), tmp_path / "report.json"
    words = ("analyze", good.parent, "--format", "json", "--out", out)
    attack(*words).check((1,))
    before = out.read_bytes()
    assert len(before) > 1024
    done = attack(*words, file_bytes=1024).check((2,))
    assert out.read_bytes() == before, "no half of a report"
    assert str(out) in done.stderr


@contextmanager
def growing(path: Path) -> Iterator[None]:
    """Makes a file grow, as a hole that takes no space, faster than it can be read."""
    code = "import os, sys, time\nsize = os.stat(sys.argv[1]).st_size\nwhile size < 1 << 43:\n size += 1 << 30\n os.truncate(sys.argv[1], size)\n time.sleep(0.02)"
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)])
    try:
        yield
    finally:
        writer.kill()
        writer.wait()


def test_growing_file(tmp_path: Path, analyze: Doctor) -> None:
    """Rows 32 to 42: of a file that grows while it is read, only what was there at first is read."""
    good = build.good_log(tmp_path / "run")
    good.write_bytes(build.KILL + b"a line of the job\n" * 1000)
    with growing(good):
        done = analyze(good.parent).check()
    assert done.killer == KILLER


def test_report_is_json_of_the_schema(tmp_path: Path, analyze: Doctor) -> None:
    """What the other tests rest upon: the good log alone gives its verdict, and no gap names it."""
    good = build.good_log(tmp_path / "run")
    done = analyze(good).check((1,))
    assert (done.killer, done.gap(good)) == (KILLER, False)
    assert json.loads(done.stdout)["schema"].startswith("rlhfdoctor.report/")


@pytest.mark.parametrize("piece", [b"step:1 ", b'File "a", line 1, in ', b"Namespace(", b"Tried to allocate "], ids=range(4))
@pytest.mark.parametrize("command", ["analyze", "bundle"])
def test_a_line_that_begins_messages_over_and_over(tmp_path: Path, attack: Doctor, piece: bytes, command: str) -> None:
    """A second attack: a line of a MiB costs neither minutes nor memory, and the verdict is that of the line behind it."""
    log = tmp_path / "job" / "job.log"
    log.parent.mkdir()
    log.write_bytes((piece * (build.MIB // len(piece))) + b"\n" + build.KILL)
    if command == "bundle":
        attack("bundle", log, "--out", tmp_path / "b.tar.gz").check()
        return
    assert attack("analyze", log, "--format", "json").check((1,)).killer == build.KILLER


def test_variables_that_hold_each_other(tmp_path: Path, attack: Doctor) -> None:
    """A second attack: 50,000 variables, each a letter longer than the one before."""
    folder = build.good_log(tmp_path / "job").parent
    chain = "".join(f"V{number}=${{V{number - 1}}}x\n" for number in range(1, 50_000))
    (folder / "launch.sh").write_text(f"{chain}python t.py --a=$V49999\n")
    (folder / "job.sbatch").write_text("#SBATCH --mem=1G\n" * 100_000)
    assert attack("analyze", folder, "--format", "json").check((1,)).killer == build.KILLER


def test_more_configuration_than_memory(tmp_path: Path, analyze: Doctor) -> None:
    """All samples of a dataset as JSON files: the launch script, which comes behind them, is read all the same."""
    folder = build.good_log(tmp_path / "job").parent
    for number in range(100):
        samples = [{"prompt": "x" * 1000, "answer": f"{number}.{index}"} for index in range(1000)]
        (folder / f"a{number}.json").write_text(json.dumps(samples))
    (folder / "launch.sh").write_text("python t.py --adam_offload --zero_stage 3\n")
    done = analyze(folder).check((1,))
    assert (done.killer, done.gap("a99.json"), done.gap("a3.json")) == (KILLER, True, False)
    assert {setting["file"].rsplit("/", 1)[-1] for setting in json.loads(done.stdout)["settings"]} == {"launch.sh"}


@pytest.mark.parametrize("dangling", [False, True], ids=["there", "dangling"])
@pytest.mark.parametrize("command", ["report", "analyze", "compare", "each"])
def test_report_through_a_link(tmp_path: Path, attack: Doctor, command: str, dangling: bool) -> None:
    """A second attack: a link with the name of a report, in a folder that was received, is not written through."""
    run, victim = build.good_run(tmp_path / "run"), tmp_path / "victim"
    if not dangling:
        victim.write_text("mine")
    link = run / "doctor-report.html"
    link.symlink_to(victim)
    words = {
        "report": ("report", "."),
        "analyze": ("analyze", ".", "--format", "html", "--out", link.name),
        "compare": ("compare", ".", run, "--out", link.name),
        "each": ("analyze", "--each", ".", run, "--out", link.name),
    }[command]
    done = attack(*words, cwd=run).check((2,))
    assert "is a link" in done.stderr, done.stderr
    assert (victim.exists(), victim.read_text() if victim.exists() else "mine") == (not dangling, "mine")


LINES = {
    "[gloo/transport/] Timed out waiting 0a ": build.RUN_KILLER,
    "NCCL WARNa/dev/shm/nccl": build.RUN_KILLER,
    "container memorylimita": build.RUN_KILLER,
    "task name=a, pid=0, actual memo": "ray-memory-monitor",  # that is its anchor, and where it was cut does not count
}


@pytest.mark.parametrize(("body", "killer"), LINES.items(), ids=["gloo", "nccl", "container", "ray"])
def test_lines_that_begin_a_message_over_and_over(tmp_path: Path, analyze: Doctor, body: str, killer: str) -> None:
    """Row 28: of a line of 64 KiB, whose search took minutes, and of what is beside it."""
    folder = build.good_run(tmp_path / "run")
    (folder / "long.log").write_text(body * (65_000 // len(body)) + "\n")
    assert analyze(folder).check((1,)).killer == killer


@pytest.mark.parametrize("place", [".", ".."])
@pytest.mark.parametrize("name", ["pyproject.toml", "rlhfdoctor.toml"])
def test_a_project_file_of_one_long_key(tmp_path: Path, attack: Doctor, place: str, name: str) -> None:
    """40 kB took 2.3 GiB, also where the file is not believed: any user's /tmp/pyproject.toml, for all who work below."""
    folder = tmp_path / "outer" / "run"
    folder.mkdir(parents=True)
    (folder / "run.log").write_text("hello\n")
    (folder / place / name).write_text(f"[tool.rlhfdoctor]\n{'.'.join('a' * 20_000)} = 1\n")
    (folder / place).chmod(0o777)
    done = attack("analyze", "run.log", cwd=folder)
    assert done.code == 3 and done.peak_mib < PEAK_MIB


def test_titles_that_never_end(tmp_path: Path, analyze: Doctor) -> None:
    """Half a megabyte of the beginning of a terminal's title on one line: the rest of the log is read."""
    good = build.good_log(tmp_path / "run")
    good.with_name("train.log").write_bytes(b"\x1b]" * 250_000 + b"\n")
    assert analyze(good.parent).check().killer == KILLER


def test_nodes_that_lie_elsewhere(tmp_path: Path, attack: Doctor) -> None:
    """Whose `nodes` is a link out of the folder: another run of this machine is neither read nor packed."""
    own = write_run(tmp_path / "secret" / "runA", 5, anon={"victim": lambda t: 100.0})
    run = write_run(tmp_path / "received", 5, anon={"actor": lambda t: 100.0})
    (run / "nodes").symlink_to(own.parent)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "nodes").symlink_to(own.parent)
    assert [find_nodes(run), find_nodes(tmp_path / "other"), is_run(tmp_path / "other")] == [[run], [], False]
    attack("bundle", run, "--out", tmp_path / "out.tar.gz").check((0, 1, 3))
    with tarfile.open(tmp_path / "out.tar.gz") as archive:
        assert [name for name in archive.getnames() if "runA" in name or "nodes" in name] == []
