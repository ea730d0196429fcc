"""Changes to what a run left behind that may not change what the doctor says, and sources that may be missing."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from rlhfdoctor.logs.flight import rank_of_dump
from rlhfdoctor.settings.read import is_configuration

Text = Callable[[str], str]
_ADDRESS = re.compile(r"\b(?:10|172|192)\.\d{1,3}\.\d{1,3}\.(\d{1,3})\b")
_NODE = re.compile(r"\b(node|host)-?(\d+)\b")
_RANK = re.compile(r"(\[rank ?|\[Rank |\bRank |, Rank | rank:? ?)(\d+)\b")
_STAMP = re.compile(r"\b(20\d\d-\d\d-\d\d)([ T])(\d\d:\d\d:\d\d)")
_RECORD = re.compile(r"^(?:\(\w+ pid=\d+|\[?20\d\d-\d\d-\d\d[ T]\d\d:)")
_NOISE = "INFO 07-01 10:00:00 heartbeat.py:77] alive\n"
_RANK_SHIFT = 40
_KERNEL = re.compile(r"dmesg|kern(?:el)?[.\-_]|(?:^|/)kmsg|messages|syslog|journal", re.I)


def rename_hosts(text: str) -> str:
    """Other addresses and node names, one for one."""
    return _NODE.sub(r"\g<1>7\2", _ADDRESS.sub(r"172.23.77.\1", text))


def rename_ranks(text: str) -> str:
    """Every rank forty higher."""
    return _RANK.sub(lambda m: f"{m[1]}{int(m[2]) + _RANK_SHIFT}", text)


def shift_zone(text: str) -> str:
    """Full stamps five and a half hours later."""

    def later(match: re.Match[str]) -> str:
        try:
            moved = datetime.fromisoformat(f"{match[1]} {match[3]}") + timedelta(hours=5, minutes=30)
        except ValueError:
            return match[0]
        return moved.strftime(f"%Y-%m-%d{match[2]}%H:%M:%S")

    return _STAMP.sub(later, text)


def insert_noise(text: str) -> str:
    """Lines of a talkative other process before every third record, at the start and at the end."""
    lines, count = [_NOISE] * 20, 0
    for line in text.splitlines(keepends=True):
        count += bool(_RECORD.match(line))
        if _RECORD.match(line) and count % 3 == 0:
            lines.append(_NOISE)
        lines.append(line)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join(lines + [_NOISE] * 20)


def fold_repeats(text: str) -> str:
    """Lines of Ray's workers as Ray folds them when several processes say the same."""
    return re.sub(
        r"^((?:\x1b\[\d+m)?\(\w+ pid=\d+(?:, ip=[\d.]+)?\)(?:\x1b\[0m)? (?=\S).{20,400})$",
        r"\1 [repeated 3x across cluster]",
        text,
        count=5,
        flags=re.M,
    )


TEXT_CHANGES: dict[str, Text] = {
    "hosts renamed": rename_hosts,
    "ranks renamed": rename_ranks,
    "zone shifted": shift_zone,
    "noise inserted": insert_noise,
    "repeated lines folded": fold_repeats,
}


def copy_changed(files: tuple[Path, ...], target: Path, change: Text) -> None:
    """The files with their text changed; configuration and what is no text stays."""
    for path, name in _walk(files):
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        data = path.read_bytes()
        plain = (
            not is_configuration(path.name)
            and rank_of_dump(path.name) is None
            and b"\0" not in data[:4096]
            and path.suffix not in (".gz", ".zst")
        )
        place.write_bytes(
            change(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape") if plain else data
        )


def copy_shuffled(files: tuple[Path, ...], target: Path) -> None:
    """The files under names in another order, each in a folder of its own."""
    pairs = list(_walk(files))
    order = list(range(len(pairs)))
    random.Random(len(pairs)).shuffle(order)
    for place, (path, name) in zip(order, pairs):
        folder = target / f"{place:03d}"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / Path(name).name)


def source_of(path: Path) -> str | None:
    """The kind of source that a file is, of those that the exam leaves out."""
    if path.suffix == ".trace" or path.name in ("run.json", "orders.json"):
        return "trace"
    if _KERNEL.search(path.name):
        return "kernel log"
    return "configuration" if is_configuration(path.name) or path.name.endswith((".sh", ".sbatch")) else None


def copy_without(files: tuple[Path, ...], target: Path, dropped: str) -> int:
    """The files without one kind of source; how many were left out."""
    count = 0
    for path, name in _walk(files):
        if source_of(path) == dropped:
            count += 1
            continue
        place = target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    return count


def is_recorded(files: tuple[Path, ...]) -> bool:
    """Whether a recorder's folder is among them: its files belong together and are not renamed."""
    return any(path.suffix == ".trace" for path, _ in _walk(files))


def _walk(files: tuple[Path, ...]) -> list[tuple[Path, str]]:
    found = []
    for path in files:
        if path.is_dir():
            found += [(inner, str(inner.relative_to(path))) for inner in sorted(path.rglob("*")) if inner.is_file()]
        else:
            found.append((path, path.name))
    return found
