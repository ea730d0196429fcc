"""The doctor's own exam: `make exam` (python -m tests.exam.exam --write) scores every labelled incident and writes RESULTS.md.

Three parts: the figures that shared/tools/score.py prints, by origin of the incidents; incidents with one source left out; incidents
under changes that may not matter. Figures of the shared incidents need them beside the checkout.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.errors import SourceError
from rlhfdoctor.logs import streams
from rlhfdoctor.types import Incident
from tests.exam.calibrate import reliability, table
from tests.exam.cases import ROOT, Case, all_cases
from tests.exam.changes import TEXT_CHANGES, copy_changed, copy_shuffled, copy_without, is_recorded

RESULTS = ROOT / "tests" / "exam" / "RESULTS.md"
RESOURCE = ("host-", "gpu-", "shm-", "comm-")
DROPPED = ("kernel log", "trace", "configuration")
SMALL_BYTES = 61
"""Blocks so small that every message is cut somewhere."""


def diagnose(paths: list[str]) -> Incident | None:
    """The incident; None where nothing was left to read."""
    try:
        return analyze(paths)
    except SourceError:
        return None


def said(incident: Incident | None) -> tuple[str, str | None]:
    """What counts as the answer: the verdict, and the first cause where there is a verdict."""
    if incident is None:
        return "nothing to read", None
    return incident.verdict, incident.best.cause if incident.best and incident.verdict == "cause" else None


@dataclass
class Figures:
    """Hits by figure, as score.py counts them."""

    hits: dict[str, list[bool]] = field(default_factory=dict)
    told: list[tuple[float, bool]] = field(default_factory=list)
    misses: list[str] = field(default_factory=list)

    def count(self, name: str, hit: bool, miss: str = "") -> None:
        """One more of a figure."""
        self.hits.setdefault(name, []).append(hit)
        if not hit and miss:
            self.misses.append(miss)

    def show(self, name: str) -> str:
        """Share and counts."""
        hits = self.hits.get(name)
        return f"{sum(hits) / len(hits):.3f} ({sum(hits)}/{len(hits)})" if hits else "-"


def tail(name: str) -> str:
    """The last part of a setting's name, for comparison across spellings."""
    return name.split()[0].split("=")[0].lstrip("-+").split(".")[-1].replace("-", "_").lower() if name.split() else ""


def score(cases: list[Case]) -> Figures:
    """All figures over these cases."""
    figures = Figures()
    for case in cases:
        incident = diagnose([str(path) for path in case.files])
        figures.count("answered", incident is not None, f"{case.name}: no answer")
        if incident is None:
            continue
        first = incident.best.cause if incident.best else None
        killer = incident.death.killer if incident.death and incident.death.killer else "none"
        figures.count(
            "killer",
            killer == case.killer or case.killer == "other",
            f"{case.name}: killer {killer}, truth {case.killer}",
        )
        if case.kind == "decidable":
            hit = first in case.accept
            roots = [f.cause for f in incident.findings if f.explained_by is None][:3]
            figures.count(
                "top1", hit, f"{case.name}: said {first} ({incident.verdict}), truth {', '.join(case.accept)}"
            )
            figures.count("strict1", first == case.accept[0])
            figures.count("top3", any(cause in case.accept for cause in roots))
            if incident.best:
                figures.told.append((incident.best.confidence, hit))
                fixes = {tail(fix["setting"]) for fix in case.label.get("accepted_fix") or [] if fix.get("setting")} - {
                    ""
                }
                if hit and fixes and case.label.get("fix_is_setting"):
                    touched = {tail(text) for p in incident.best.patches for text in (p.setting, p.spelled)}
                    figures.count(
                        "patch",
                        bool(fixes & touched),
                        f"{case.name}: patches touch {sorted(touched)}, truth {sorted(fixes)}",
                    )
        elif case.kind == "undecidable":
            figures.count(
                "abstain",
                incident.verdict in ("undecided", "inconclusive"),
                f"{case.name}: {incident.verdict} {first or ''} where nothing decides",
            )
        elif case.kind == "quiet":
            alarm = incident.verdict == "cause" and str(first).startswith(RESOURCE)
            figures.count("false alarm", not alarm, f"{case.name}: false alarm {first}")
    return figures


def drop_sources(
    cases: list[Case], dropped: str
) -> Iterator[tuple[Case, tuple[str, str | None], tuple[str, str | None]]]:
    """(case, answer with everything, answer without) for the cases that have such a source and something besides."""
    for case in cases:
        with tempfile.TemporaryDirectory() as folder:
            if not copy_without(case.files, Path(folder), dropped):
                continue
            without = diagnose([folder])
            if without is not None:
                yield case, said(diagnose([str(path) for path in case.files])), said(without)


def changed(case: Case) -> Iterator[tuple[str, tuple[str, str | None]]]:
    """(change, answer) of every change that applies to a case."""
    for name, change in TEXT_CHANGES.items():
        if is_recorded(case.files):
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy_changed(case.files, Path(folder), change)
            yield name, said(diagnose([folder]))
    if not is_recorded(case.files):
        with tempfile.TemporaryDirectory() as folder:
            copy_shuffled(case.files, Path(folder))
            yield "files shuffled", said(diagnose([folder]))
    with mock.patch.object(streams, "READ_BYTES", SMALL_BYTES):
        yield f"blocks of {SMALL_BYTES} bytes", said(diagnose([str(path) for path in case.files]))


def report() -> tuple[str, bool]:
    """RESULTS.md, and whether the hard rules hold: no false alarm, no flip to a wrong verdict, no change of the answer."""
    cases = all_cases()
    lines = [
        "# The doctor's exam",
        "",
        f"Made by `make exam`. {len(cases)} labelled incidents: {sum(c.source == 'shared' for c in cases)} from public reports and {sum('round' in c.source for c in cases)} from rounds that were scored unseen and read since (ROUNDS.md; neither is in this repository), {sum(c.source == 'samples' for c in cases)} samples, of which {sum(c.name.startswith('lab-') for c in cases)} are runs of the lab.",
        "",
    ]
    groups = {
        "public reports": [c for c in cases if c.source == "shared"],
        "rounds read": [c for c in cases if c.source.startswith("round")],
        "own rounds read": [c for c in cases if c.source.startswith("own round")],
        "samples": [c for c in cases if c.source == "samples" and not c.name.startswith("lab-")],
        "lab": [c for c in cases if c.name.startswith("lab-")],
    }
    figures = {name: score(group) for name, group in groups.items() if group}
    lines += ["| figure | " + " | ".join(figures) + " |", "|---|" + "---|" * len(figures)]
    for name in ("top1", "strict1", "top3", "killer", "abstain", "false alarm", "patch", "answered"):
        label = "no false alarm" if name == "false alarm" else name
        lines.append(f"| {label} | " + " | ".join(f.show(name) for f in figures.values()) + " |")
    lines.append(
        "| calibration error | " + " | ".join(f"{reliability(f.told)[0]:.3f}" for f in figures.values()) + " |"
    )
    lines += [
        "",
        "The rules were written by people who had read the public reports, so those figures are optimistic. Weights are the",
        "rules' own; the curve of the confidences is fitted, and its error is shown for incidents that it was not fitted to (ten folds):",
        "",
        table()[0],
    ]
    good = all(all(f.hits.get("false alarm", [True])) for f in figures.values())

    lines += [
        "## One source left out",
        "",
        "| without | incidents | same answer | undecided, inconclusive or healthy now | right now, not before | another accepted cause, or grey | a wrong verdict now |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    flips: list[str] = []
    for dropped in DROPPED:
        same = less = better = other = wrong = 0
        for case, before, after in drop_sources(cases, dropped):
            wanted = case.kind == "decidable" and after[1] in case.accept
            same += after == before
            less += after != before and after[1] is None
            better += after != before and wanted and before[1] not in case.accept
            other += (
                after != before
                and after[1] is not None
                and ((wanted and before[1] in case.accept) or case.kind == "grey")
            )
            if after != before and after[1] is not None and not wanted and case.kind != "grey":
                wrong += 1
                flips.append(f"{case.name} without {dropped}: {after[1]} instead of {before[1] or before[0]}")
        lines.append(
            f"| {dropped} | {same + less + better + other + wrong} | {same} | {less} | {better} | {other} | {wrong} |"
        )
    lines += ["", *(f"- {flip}" for flip in flips), ""]

    rows: dict[str, list[bool]] = {}
    broken: list[str] = []
    for case in cases:
        before = said(diagnose([str(path) for path in case.files]))
        for name, after in changed(case):
            rows.setdefault(name, []).append(after == before)
            if after != before:
                broken.append(f"{case.name}, {name}: {after[1] or after[0]} instead of {before[1] or before[0]}")
    lines += [
        "## Changes that may not matter",
        "",
        "| change | incidents | same answer |",
        "|---|---:|---:|",
        *(f"| {name} | {len(hits)} | {sum(hits)} |" for name, hits in rows.items()),
        "",
        *(f"- {line}" for line in broken),
        "",
    ]
    lines += ["## Misses", "", *(f"- {group}: {miss}" for group, f in figures.items() for miss in f.misses), ""]
    return "\n".join(lines), good and not flips and not broken


def main() -> int:
    text, good = report()
    sys.stdout.write(text)
    if "--write" in sys.argv:
        RESULTS.write_text(text)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
