"""What other programs can say of memory, kills, time-outs, disks or NaN, and what of it is read: `make speakers`.

Needs a folder with clones and unpacked packages, which `speakers.yaml` lists (`owner+name/repo` or `owner+name`, all tags; wheels as
`name-version`, with `strings -n 12 LIBRARY > LIBRARY.txt` for what is compiled). Writes SPEAKERS.md; what is not at hand keeps no row.

    RLHFDOCTOR_SPEAKERS=~/src make speakers                    # the table
    RLHFDOCTOR_SPEAKERS=~/src python -m tests.speakers.speakers --open vLLM   # the open messages of a program
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.vocabulary import EVENT
from tests.speakers import extract

HERE = Path(__file__).parent
PAGE = HERE / "SPEAKERS.md"
READERS: dict[str, tuple[tuple[str, ...], Callable[[str], Iterator[str]]]] = {
    "python": ((".py",), extract.of_python),
    "c": ((".c", ".cc", ".cpp", ".h", ".cu"), extract.of_c),
    "strings": ((".txt",), extract.of_strings),
}
_ANY = {EVENT.python.error, EVENT.python.bare_error}
_TESTS = re.compile(r"(?:^|/)(?:tests?|testing|examples|_internal/test\w*)/|/test_|_test\.")


@dataclass
class Row:
    """The messages of one program in one release."""

    program: str
    release: str
    met: set[str] = field(default_factory=set)
    raised: set[str] = field(default_factory=set)
    left: dict[str, str] = field(default_factory=dict)
    open: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Group:
    """Messages that are knowingly not read."""

    name: str
    why: str
    anchors: re.Pattern[str]
    programs: tuple[str, ...]


def groups() -> list[Group]:
    """The groups of `left_out.yaml`."""
    rows = yaml.safe_load((HERE / "left_out.yaml").read_text())
    return [
        Group(
            row["group"],
            row["why"],
            re.compile("|".join(row["anchors"]), re.IGNORECASE),
            tuple(row.get("programs", ())),
        )
        for row in rows
    ]


def main() -> None:
    """Writes the page, or prints the open messages of one program."""
    root = os.environ.get("RLHFDOCTOR_SPEAKERS")
    if not root:
        sys.exit("RLHFDOCTOR_SPEAKERS: name the folder with the clones (see the head of this file)")
    only = sys.argv[sys.argv.index("--open") + 1] if "--open" in sys.argv else None
    known, rows = groups(), []
    for speaker in yaml.safe_load((HERE / "speakers.yaml").read_text()):
        if only is None or only == speaker["program"]:
            rows += [read(speaker, release, Path(root), known) for release in speaker["releases"]]
    rows = [row for row in rows if row.met or row.open or row.left]
    if only is not None:
        print("\n".join(sorted(set().union(*(row.open for row in rows)))))
        return
    if "--before" in sys.argv:
        kept = {row.program: {r.release: len(r.met) for r in rows if r.program == row.program} for row in rows}
        (HERE / "before.yaml").write_text(
            "# Own events of each release before the first run.\n" + yaml.safe_dump(kept, sort_keys=False)
        )
    PAGE.write_text(page(rows, known))


def read(speaker: dict[str, Any], release: str, root: Path, known: list[Group]) -> Row:
    """The messages of a release, sorted by what becomes of them."""
    endings, reader = READERS[speaker["language"]]
    row = Row(speaker["program"], str(release))
    said = {
        speaker.get("prefix", "") + line
        for name, text in _files(speaker, str(release), root, endings)
        if not _TESTS.search(name)
        for line in reader(text)
        if extract.ANCHOR.search(line)
    }
    kinds = _kinds(sorted(said))
    for line in sorted(said):
        group = next(
            (g for g in known if (not g.programs or row.program in g.programs) and g.anchors.search(line)), None
        )
        if kinds.get(line, set()) - _ANY:
            row.met.add(line)
        elif group is not None:
            row.left[line] = group.name
        elif kinds.get(line):
            row.raised.add(line)
        else:
            row.open.add(line)
    return row


def _kinds(lines: list[str]) -> dict[str, set[str]]:
    """Line -> the kinds of event that it becomes."""
    found: dict[str, set[str]] = {}
    for hit in Scanner(PATTERNS).scan(["\n".join(lines).encode() + b"\n"]):
        if hit.pattern.kind.scope not in ("phase", "progress", "config"):
            found.setdefault(lines[hit.line - 1], set()).add(hit.pattern.kind)
    return found


def _files(speaker: dict[str, Any], release: str, root: Path, endings: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if "package" in speaker:
        folder = root / "packages" / f"{speaker['package']}-{release}"
        folder = folder if folder.is_dir() else root / f"{speaker['package']}-{release}"
        paths = sorted(p for pattern in speaker["paths"] for p in folder.glob(pattern))
        for path in sorted({f for p in paths for f in (p.rglob("*") if p.is_dir() else [p])}):
            if path.is_file() and path.name.endswith(endings):
                yield str(path.relative_to(folder)), path.read_text(errors="replace")
        return
    clone = next((c for c in (root / speaker["clone"] / "repo", root / speaker["clone"]) if c.is_dir()), None)
    if clone is None:
        return
    listed = _git(clone, "ls-tree", "-r", "--name-only", release, "--", *speaker["paths"])
    names = [name for name in listed.splitlines() if name.endswith(endings)]
    batch = "".join(f"{release}:{name}\n" for name in names)
    done = subprocess.run(
        ["git", "-C", str(clone), "cat-file", "--batch"], input=batch.encode(), capture_output=True, check=True
    )
    data = done.stdout
    for name in names:
        head, _, data = data.partition(b"\n")
        size = int(head.split()[-1])
        yield name, data[:size].decode("utf-8", "replace")
        data = data[size + 1 :]


def _git(clone: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(clone), *arguments], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def page(rows: list[Row], known: list[Group]) -> str:
    """The table in Markdown."""
    before = yaml.safe_load((HERE / "before.yaml").read_text())
    lines = [
        "# What other programs can say, and what of it is read",
        "",
        "Made by `make speakers`: messages near words of memory, kills, time-outs, shared memory, pinning, disks, limits or NaN in the source of each",
        "release (libraries: in the strings that they hold, which are pieces). *Own*: it becomes an event of its own; *exception*: it is raised, and read",
        "as any exception; *left out*: knowingly, see below; *open*: neither. *Before*: own events before the first run of this script.",
        "A program without a row says nothing of the kind (OpenRLHF), or was not at hand.",
        "",
        "| program | release | found | own | before | exception | left out | open |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        found = len(row.met) + len(row.raised) + len(row.left) + len(row.open)
        was = before.get(row.program, {}).get(row.release, "")
        lines.append(
            f"| {row.program} | {row.release} | {found} | {len(row.met)} | {was} | {len(row.raised)} | {len(row.left)} | {len(row.open)} |"
        )
    counts = Counter(name for row in rows for name in {(line, name) for line, name in row.left.items()})
    sums: Counter[str] = Counter(name for (_, name), _ in counts.items())
    lines += ["", "## Left out", "", "| group | messages | why |", "|---|---|---|"]
    lines += [f"| {group.name} | {sums[group.name]} | {group.why} |" for group in known if sums[group.name]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
