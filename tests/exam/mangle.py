"""Whether mangled logs are still read: `make mangle` (python -m tests.exam.mangle) prints survival by operation.

Events: the sample line of every pattern, between lines that say nothing, is mangled; an event of its kind must come out.
Verdicts: every sample and every case of a rule is mangled; the verdict may weaken, but a run that died is never healthy and
its cause never another one.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.errors import SourceError
from rlhfdoctor.logs.events import PATTERNS, read_events
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.pattern import Pattern
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.vocabulary import EVENT
from tests.exam.cases import ROOT, sample_cases
from tests.exam.changes import copy_changed, is_recorded
from tests.exam.mangling import OPERATIONS, mangled

_BEFORE = "INFO 07-01 10:00:00 heartbeat.py:77] alive\n" * 2
_AFTER = "INFO 07-01 10:00:01 heartbeat.py:77] alive\n"
LEAST_SURVIVAL = 0.95
"""Share of patterns x operations whose event must survive."""
WEAKER = ("undecided", "inconclusive", "nothing to read")


@dataclass(frozen=True)
class Folder:
    """Files that the doctor reads together, and the causes that are right for them."""

    name: str
    files: tuple[Path, ...]
    accept: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """What the doctor says before or after an operation."""

    folder: str
    operation: str
    before: tuple[str, str | None]
    after: tuple[str, str | None]
    wrong: bool


def kinds_in(text: str, scanner: Scanner) -> set[str]:
    """The kinds of event in a text."""
    source = Source("job.log", lambda: iter((text.encode("utf-8", "surrogateescape"),)), len(text))
    return {str(event.kind) for event in read_events(source, scanner, [])}


def lost(patterns: Iterable[tuple[int, Pattern]], names: Iterable[str], scanner: Scanner) -> Iterator[tuple[str, int]]:
    """(operation, number of the pattern) for each event that does not survive."""
    chosen = list(names)
    for index, pattern in patterns:
        if pattern.kind == EVENT.data.sample:  # where printed samples lie is used while reading; no event comes out
            continue
        text = f"{_BEFORE}{pattern.sample}\n{_AFTER}"
        for name in chosen:
            if str(pattern.kind) not in kinds_in(mangled(text, name, str(index)), scanner):
                yield name, index


def folders() -> list[Folder]:
    """Samples and the cases of rules, without those that a recorder wrote."""
    found = [Folder(f"samples/{case.name}", case.files, case.accept) for case in sample_cases()]
    for rule in sorted((ROOT / "rules").glob("*/fires/*")):
        found.append(Folder(f"{rule.parts[-3]}/fires/{rule.name}", (rule,), (rule.parts[-3],)))
    for rule in sorted((ROOT / "rules").glob("*/silent/*")):
        found.append(Folder(f"{rule.parts[-3]}/silent/{rule.name}", (rule,), ()))
    return [folder for folder in found if folder.files[0].is_dir() and not is_recorded(folder.files)]


def said(paths: Sequence[str]) -> tuple[str, str | None]:
    """The verdict, and the first cause where there is one."""
    try:
        incident = analyze(paths)
    except SourceError:
        return "nothing to read", None
    return incident.verdict, incident.best.cause if incident.best and incident.verdict == "cause" else None


def judge(folder: Folder, names: Sequence[str]) -> list[Outcome]:
    """What each operation makes of the verdict on a folder."""
    before = said([str(path) for path in folder.files])
    found = []
    for name in names:
        with tempfile.TemporaryDirectory() as place:
            copy_changed(folder.files, Path(place, "run"), lambda text, name=name: mangled(text, name, folder.name))  # type: ignore[misc]
            after = said([place])
        found.append(Outcome(folder.name, name, before, after, is_wrong(before, after, folder.accept)))
    return found


def is_wrong(before: tuple[str, str | None], after: tuple[str, str | None], accept: Sequence[str]) -> bool:
    """Whether a verdict is worse than weaker: healthy for a run that died, or another cause."""
    if after[0] in WEAKER or after == before:
        return False
    return after[0] == "healthy" or after[1] not in accept


def _judge_all(folder: Folder) -> list[Outcome]:
    return judge(folder, list(OPERATIONS))


def main() -> int:
    """Prints both tables; 1 where less survives than must."""
    scanner = Scanner(PATTERNS)
    gone = list(lost(enumerate(PATTERNS), OPERATIONS, scanner))
    share = 1 - len(gone) / (len(PATTERNS) * len(OPERATIONS))
    print(f"events that survive: {share:.4f} of {len(PATTERNS)} patterns x {len(OPERATIONS)} operations")
    for name in OPERATIONS:
        missed = [str(PATTERNS[index].kind) for operation, index in gone if operation == name]
        print(f"  {name:22} {1 - len(missed) / len(PATTERNS):.3f}  {' '.join(missed[:400])}")
    if "--events" in sys.argv:
        return int(share < LEAST_SURVIVAL)
    with ProcessPoolExecutor(2) as pool:
        outcomes = [outcome for found in pool.map(_judge_all, folders()) for outcome in found]
    wrong = [outcome for outcome in outcomes if outcome.wrong]
    print(f"verdicts: {len(outcomes)}, the same {sum(o.before == o.after for o in outcomes)}, wrong {len(wrong)}")
    for name in OPERATIONS:
        own = [outcome for outcome in outcomes if outcome.operation == name]
        same = sum(outcome.before == outcome.after for outcome in own)
        print(f"  {name:22} same {same / len(own):.3f}  wrong {sum(outcome.wrong for outcome in own)}")
    for outcome in wrong:
        print(f"  WRONG {outcome.folder}, {outcome.operation}: {outcome.before} -> {outcome.after}")
    return int(bool(wrong) or share < LEAST_SURVIVAL)


if __name__ == "__main__":
    raise SystemExit(main())
