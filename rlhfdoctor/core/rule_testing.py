"""Rules against their own samples: `fires/` must put the cause first, `silent/` must not claim it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlhfdoctor.core.diagnose import make_incident
from rlhfdoctor.core.session import Session
from rlhfdoctor.engine.catalogue import load_catalogue, load_rule, load_rules
from rlhfdoctor.engine.draft import missing_parts
from rlhfdoctor.engine.schema import Rule
from rlhfdoctor.errors import SourceError
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.i18n.message import joined, quoted
from rlhfdoctor.places import rules_folder
from rlhfdoctor.types import Incident

_MOST_BYTES = 1 << 20
EXPECTED = "expected.diff"
"""The patches that a `fires/` sample must yield, next to its input."""


def check_rules(folder: Path | None, added: Sequence[Path] = ()) -> tuple[list[str], int]:
    """(failures as sentences, number of samples) of a catalogue or of one rule's folder; drafts count as if done.

    Args:
        added: folders of further rules that compete with them.
    """
    everything, chosen = load_catalogue(*added), tuple(replace(rule, is_draft=False) for rule in _chosen(folder))
    others = tuple(rule for rule in everything if rule.id not in {c.id for c in chosen})
    failures, count = [], 0
    for rule in chosen:
        for sample in samples(rule):
            count += 1
            failure = check_sample(rule, sample, (*others, *chosen))
            if failure:
                failures.append(failure)
    return failures, count


def check_parts(folder: Path | None, added: Sequence[Path] = ()) -> list[str]:
    """What the rules of a catalogue, or the one of a folder, lack apart from samples: texts, translations, causes."""
    chosen = _chosen(folder)
    causes = {rule.id for rule in (*load_catalogue(*added), *chosen)}
    return [part for rule in chosen for part in missing_parts(rule, causes)]


def _chosen(folder: Path | None) -> tuple[Rule, ...]:
    if folder is None or folder.resolve() == rules_folder().resolve():
        return load_rules()
    return (load_rule(folder),) if (folder / "rule.yaml").exists() else load_rules(folder)


def samples(rule: Rule) -> list[Path]:
    """The sample folders of a rule, fires/ first."""
    folder = rule.path.parent
    return [path for kind in ("fires", "silent") for path in sorted((folder / kind).iterdir()) if path.is_dir()]


def check_sample(rule: Rule, sample: Path, rules: tuple[Rule, ...]) -> str | None:
    """What is wrong with a sample, or None. `expected.diff` in a sample is what its patches must be."""
    incident = _analyze(sample, rules)
    first = incident.best
    said = f"{first.cause} {first.confidence}" if first else "nothing"
    if sample.parent.name == "silent":
        claimed = first is not None and first.cause == rule.id and first.confidence >= 0.5
        return f"{sample}: {rule.id} is claimed ({said}) where it must be silent" if claimed else None
    if first is None or first.cause != rule.id:
        return f"{sample}: the doctor says {said}, not {rule.id}"
    if first.confidence < 0.5:
        return f"{sample}: {rule.id} comes first, but at {first.confidence} it is no verdict"
    expected = _text(sample / EXPECTED) if (sample / EXPECTED).exists() else ""
    shown = _diff(incident, sample)
    return None if shown == expected else f"{sample}: its patches differ from {EXPECTED}; they are now:\n{shown}"


def _text(path: Path) -> str:
    """
    Raises:
        SourceError: it is no regular file, or cannot be read.
    """
    try:
        return read_bytes(path, _MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise SourceError(joined(quoted(path), quoted(error.strerror or error), by=": ")) from None


def sample_diff(sample: Path, rules: tuple[Rule, ...]) -> str:
    """The diffs of the first finding's patches, with paths below the sample's folder."""
    return _diff(_analyze(sample, rules), sample)


def _diff(incident: Incident, sample: Path) -> str:
    first = incident.best
    shown = "".join(patch.diff for patch in first.patches) if first else ""
    return shown.replace(f"{str(sample).lstrip('/')}/", "")


def _analyze(sample: Path, rules: tuple[Rule, ...]) -> Incident:
    runs = sorted({path.parent for path in sample.rglob("*.trace")})
    files = sorted(path for path in sample.rglob("*") if path.is_file() and path.name != EXPECTED)
    alone = [path for path in files if not any(path.is_relative_to(run) for run in runs)]
    with Session([str(path) for path in (*runs, *alone)]) as session:
        return make_incident(session, rules)
