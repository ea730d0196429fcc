"""What reads bytes of other people, a function each: an input that makes one raise is a finding."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import zstandard

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.i18n.message import Message
from rlhfdoctor.logs.archive import READ_ERRORS, read_members
from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.logs.flight import read_dump
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.logs.streams import Binary, decoded, decompressed, pieces
from rlhfdoctor.patch import journal
from rlhfdoctor.privacy.redact import Redactor
from rlhfdoctor.privacy.secrets import cut_words
from rlhfdoctor.report.json import render as render_json
from rlhfdoctor.report.sanitize import clean, shown, visible
from rlhfdoctor.settings.read import read_configuration
from rlhfdoctor.sources import kmsg, meminfo, pressure, procfs, vllm
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.types import Gap
from tests.attacks import build

MOST_BYTES = 64 << 20
"""That an input may unpack to, as these surfaces ask for it."""
TOKEN = "ghp_" + "Zq7aB3cD9eF1gH5iJ2kL" * 2
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_SCANNER = Scanner(PATTERNS)
_ENDINGS = (".gz", ".zst", ".bz2", ".xz")
_ARCHIVES = (".tar", ".tar.gz", ".zip", ".tar.zst", ".tar.bz2")
_CONFIGURATIONS = ("launch.sh", "config.yaml", "ds_config.json", "train.py", "pip-freeze.txt")


@dataclass(frozen=True, slots=True)
class Surface:
    """One parser."""

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    length: int = 1 << 14
    """Of the longest input."""


SURFACES: dict[str, Surface] = {}


def surface(seeds: Callable[[], list[bytes]], length: int = 1 << 14) -> Callable[[Callable[[bytes], None]], Callable[[bytes], None]]:
    """Makes a function a surface under its name."""

    def add(check: Callable[[bytes], None]) -> Callable[[bytes], None]:
        SURFACES[check.__name__] = Surface(check, seeds, length)
        return check

    return add


@contextmanager
def folder() -> Iterator[Path]:
    """An empty one, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _logs() -> list[bytes]:
    found = sorted(Path(__file__).resolve().parents[2].glob("rules/*/fires/*/*.log"))
    return [build.KILL, build.OOM, *(path.read_bytes()[:4000] for path in found[::4])]


@surface(_logs)
def log(data: bytes) -> None:
    """A log: events with plain values, at lines that are there."""
    reading = Reading()
    read_log(Source("job.log", lambda: iter([data])), _SCANNER.anew(), reading, lambda count: None)
    assert not reading.gaps, reading.gaps
    for event in reading.events:
        assert event.origin.line is None or 1 <= event.origin.line <= data.count(b"\n") + 1
        assert all(isinstance(value, (str, int, float, bool, tuple, Message)) or value is None for value in event.fields.values()), event


def _packed() -> list[bytes]:
    packs = (gzip.compress, zstandard.ZstdCompressor().compress, bz2.compress, lzma.compress)
    return [bytes([number]) + pack(build.KILL * 20) for number, pack in enumerate(packs)]


@surface(_packed)
def compressed(data: bytes) -> None:
    """A compressed stream: bounded, and damage is one of the errors that are read as a gap."""
    ending, read = _ENDINGS[data[0] % len(_ENDINGS)] if data else ".gz", 0
    try:
        for piece in decoded(pieces(decompressed(io.BytesIO(data[1:]), f"job.log{ending}"))):
            read += len(piece)
            if read > MOST_BYTES:
                return
    except (Binary, *READ_ERRORS):
        pass


def _archived() -> list[bytes]:
    found = []
    for number, mode in enumerate(("w", "w:gz")):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode=mode) as tar:  # type: ignore[call-overload]
            entry = tarfile.TarInfo("a/job.log")
            entry.size = len(build.KILL)
            tar.addfile(entry, io.BytesIO(build.KILL))
        found.append(bytes([number]) + out.getvalue())
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("a/job.log", build.KILL)
    return [*found, b"\x02" + out.getvalue()]


@surface(_archived)
def archive(data: bytes) -> None:
    """An archive: its members, and gaps."""
    gaps: list[Gap] = []
    with folder() as work:
        path = work / f"logs{_ARCHIVES[data[0] % len(_ARCHIVES)] if data else '.tar'}"
        path.write_bytes(data[1:])
        for member in read_members(path, gaps, wanted=lambda name: True, most_bytes=MOST_BYTES):
            try:
                member.handle.read(MOST_BYTES)
            except READ_ERRORS:
                pass


@surface(lambda: [build.shared_lists(2, 3), build.colliding_keys(5), build.doubled_key(2)])
def flight(data: bytes) -> None:
    """A dump of torch's flight recorder."""
    list(read_dump(data, "nccl_trace_rank_0", []))


def _segments() -> list[bytes]:
    events = [build.record("process.seen", uid=1, pid=2, name="actor", role="actor"), build.record("job.exited", pid=2, code=-9)]
    with folder() as work:
        path = next(build.good_run(work / "run").glob("*.trace"))
        return [path.read_bytes(), build.header() + b"".join(events)]


@surface(_segments)
def trace(data: bytes) -> None:
    """A segment of a trace: samples, events, gaps."""
    with folder() as work:
        (work / "000001.trace").write_bytes(data)
        node = read_node(work)
        assert all(isinstance(event["kind"], str) for event in node.events)


def _runs() -> list[bytes]:
    with folder() as work:
        run = build.good_run(work / "run")
        return [b"\0" + (run / "run.json").read_bytes(), b"\1" + build.header() + build.record("mark", phase="save", step=3)]


@surface(_runs)
def run(data: bytes) -> None:
    """A recorded run with a strange run.json or segment, diagnosed: the kill in a log beside it is still found."""
    with folder() as work:
        path = build.good_run(work / "run")
        (path / "run.json" if data[:1] == b"\0" else path / "000002.trace").write_bytes(data[1:])
        (work / "job").mkdir()
        (work / "job" / "job.log").write_bytes(build.OOM)
        incident = analyze([str(path), str(work / "job")])
        assert json.loads(render_json(incident))["killer"] is not None, incident.gaps


def _configurations() -> list[bytes]:
    texts = (
        b"export A=1\npython -m openrlhf.cli.train_ppo_ray --zero_stage 3 \\\n  --x 'a b' \"$A\" $((1+2)) <<EOF\nz\nEOF\n",
        b"actor:\n  a: &x [1, {b: 2}]\n  c: *x\n  d: |\n    text\n",
        b'{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": true}}}',
        b"config = PPOConfig(learning_rate=1e-6, bf16=True)\n",
        b"torch==2.9.0\nvllm @ file:///x\n",
    )
    return [bytes([number]) + text for number, text in enumerate(texts)]


@surface(_configurations)
def configuration(data: bytes) -> None:
    """A configuration file: settings at places that are in it."""
    name = _CONFIGURATIONS[data[0] % len(_CONFIGURATIONS)] if data else "config.yaml"
    text = data[1:].decode("utf-8", "replace")
    settings, _ = read_configuration(name, text)
    assert all(setting.span is None or 0 <= setting.span[0] <= setting.span[1] <= len(text) for setting in settings)


@surface(lambda: [b'{"schema":"rlhfdoctor.patched/1","file":"a.yaml","original":"YQ==","before":"","written":""}'])
def journal_of_a_patch(data: bytes) -> None:
    """A journal: it is believed whole, or not at all."""
    with folder() as work:
        path = work / ".rlhfdoctor" / "a.yaml.json"
        path.parent.mkdir()
        path.write_bytes(data)
        try:
            entry = journal.load(path)
            assert journal.hash_of(entry.bytes_before()) == entry.before
        except journal.Damaged:
            pass


@surface(_logs, 4096)
def redactor(data: bytes) -> None:
    """A text: a token that is planted between its words goes, and redacting what is redacted changes nothing."""
    text = data.decode("utf-8", "replace")
    place = text.find(" ", len(text) // 2)
    planted = f"{text[: place + 1]} {TOKEN} {text[place + 1 :]}"
    once = _redacted(planted)
    assert TOKEN not in once and _redacted(once) == once, once
    assert TOKEN not in " ".join(cut_words(planted.split(" ")))


def _redacted(text: str) -> str:
    made = Redactor()
    made.learn(text)
    return made.text(text)


@surface(lambda: [b"a\x1b[31mred\x1b[0m\tb\xe2\x80\xae", b"\x1b]0;title\x07", b"\xc2\x9b2J"])
def screen(data: bytes) -> None:
    """What a terminal is shown of a text."""
    text = data.decode("utf-8", "replace")
    for made in (clean(text), visible(text), shown(text)):
        assert not _CONTROL.search(made.replace("\n", "").replace("\t", "")), repr(made)


def _kernel_files() -> list[bytes]:
    names = ("/proc/self/status", "/proc/self/stat", "/proc/self/io", "/proc/self/cmdline", "/proc/self/cgroup", "/proc/self/maps")
    return [Path(name).read_bytes()[:3000] for name in (*names, "/proc/meminfo", "/proc/vmstat", "/proc/zoneinfo")]


@surface(_kernel_files)
def kernel_files(data: bytes) -> None:
    """Files of /proc, cgroups and the kernel's log."""
    for parse in (
        procfs.parse_status,
        procfs.parse_stat,
        procfs.parse_io,
        procfs.parse_cmdline,
        procfs.parse_cgroup,
        procfs.parse_maps,
        meminfo.parse_meminfo,
        meminfo.parse_zoneinfo,
        meminfo.parse_vmstat,
        pressure.parse_pressure,
        kmsg.parse_record,
    ):
        parse(data)
    vllm.parse_metrics(data.decode("utf-8", "replace"))


@surface(lambda: [b"\n".join((build.KILL, build.OOM)), *_logs()[2:6]])
def folder_of_files(data: bytes) -> None:
    """The same bytes as a log, a kernel log, a script and a configuration: an incident that is valid JSON."""
    with folder() as work:
        for name in ("job.log", "dmesg.txt", "launch.sh", "config.yaml"):
            (work / name).write_bytes(data)
        try:
            incident = analyze([str(work)])
        except DoctorError:
            return  # nothing readable: a clear error
        json.loads(render_json(incident))
