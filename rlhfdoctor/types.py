"""The nouns of the doctor: one frozen type for each thing that flows through the pipeline.

Units are in the names (`_bytes`, `_s`, `_count`). None: could not be read; 0: read, and zero. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, cast

from rlhfdoctor.axes import Axes
from rlhfdoctor.coverage import Coverage
from rlhfdoctor.explanation import Explanation
from rlhfdoctor.i18n.message import NOTHING, Message, quoted
from rlhfdoctor.units import in_unit
from rlhfdoctor.vocabulary.names import Fact, Field, Kind
from rlhfdoctor.vocabulary.run import Axis, Killer, Phase

Value: TypeAlias = str | int | float | bool | None
"""What an event field, an evidence or a setting may hold."""
Verdict: TypeAlias = Literal["cause", "undecided", "healthy", "inconclusive"]
"""contract.md; inconclusive: nothing shows that the run died, and nothing that it ended well."""
Safety: TypeAlias = Literal["safe", "consent", "show"]
"""Whether a patch may be written: always, with consent, or never (contract.md)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a fact was read."""

    file: str
    """Path as the user gave it; a member of an archive as `archive!member`."""
    line: int | None = None
    """Line number from 1; counts newlines, not carriage returns."""
    host: str | None = None
    """Node address or host name, if known from the line or the path."""
    pid: int | None = None
    rank: int | None = None
    """Global rank."""
    actor: str | None = None
    """Ray class or task name in front of the line, as in `(ActorModelRayActor pid=7)`."""

    def __str__(self) -> str:
        file = "<stdin>" if self.file == "-" else self.file
        return file if self.line is None else f"{file}:{self.line}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A line that some program wrote, recognised by a pattern of its speaker."""

    kind: Kind
    fields: Mapping[Field, Value]
    origin: Origin
    text: str
    """The line as written, without colour codes, at most 2,000 characters."""
    time: float | None = None
    """Unix seconds, if the line bears a stamp with a date."""
    repeats_count: int = 1
    """Repeat count of the line, from Ray's `[repeated 12x across cluster]`."""
    after: tuple[str, ...] = ()
    """The lines behind it, for patterns that ask for them (tables)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One setting of the user's configuration in canonical and in own spelling."""

    name: str
    """Canonical name, the same for all frameworks, such as `offload_optimizer.pin_memory`."""
    spelled: str
    """As the user wrote it, such as `--adam_offload`."""
    value: Value
    framework: str
    """Whose table knows it: a framework's or that of a library, such as deepspeed, vllm, ray, container."""
    origin: Origin
    form: str
    """How it is written: flag, hydra, yaml, json, env, dump (only seen in a log) or argv (likewise)."""
    span: tuple[int, int] | None = None
    """Character offsets of the value's token in its file, for files that can be patched."""
    factor: float = 1
    """How many of the setting's own unit one of the written value is: 60 if minutes are written and seconds meant."""

    @property
    def written(self) -> Value:
        """The value as the user wrote it; `value` is in the setting's own unit."""
        return cast(Value, in_unit(self.value, self.factor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting for which the user's file (`own`) and the log of the run have different values."""

    own: Setting
    logged: Setting


@dataclass(frozen=True, slots=True, kw_only=True)
class Differences:
    """How the user's files and the log of the run agree; the log is what ran."""

    settings: tuple[Difference, ...] = ()
    compared_count: int = 0
    """Settings that both show."""
    another_run: bool = False
    """Whether so much differs that the files are hardly those of the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """Which framework ran, in which version, and how this is known."""

    name: str
    version: str | None = None
    """Exact version, or None; with the epoch of PEP 440 for a second package that restarts its release numbers."""
    package: str = ""
    """Which of its packages has this version, where that is not the one of its name."""
    since: str | None = None
    """Oldest release that accepts every spelling seen, where the exact version is unknown."""
    until: str | None = None
    """Newest release that accepts every spelling seen."""
    basis: Message = NOTHING
    """The line or file that shows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Something that could not be read, and why. It is shown, never swallowed."""

    what: Message
    why: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A fact that a finding rests on, as the report shows it."""

    kind: Literal["log", "evidence", "setting"]
    says: Message
    """One sentence."""
    file: str | None = None
    line: int | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A computed fact under a name that rules can ask for."""

    name: Fact
    value: Value | Message
    """A message where the fact is a sentence itself."""
    says: Message
    """One sentence with the numbers."""
    origin: Origin | None = None
    text: str | None = None
    """The line that it was computed from, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """One process of the run as far as the logs name it."""

    role: str | None = None
    """One of `ROLES`, or what the trainer's own marks say."""
    name: str | None = None
    """As the kernel or Ray calls it."""
    pid: int | None = None
    bytes: int | None = None
    """Memory that it held when this was written."""
    rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The first failure: who ended what, when and where."""

    killer: Killer
    time: float | None = None
    phase: Phase | None = None
    step: int | None = None
    node: str | None = None
    victim: Process = field(default_factory=Process)
    culprit: Process | None = None
    """Who held the memory; may be another process than the victim."""
    event: Event | None = None
    """The line that shows it."""
    certain: bool = True
    """False where a vanished process is all there is, or a kill that nothing ties to the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """An input that would decide, and the one thing to do to get it."""

    what: Message
    settle: Message


@dataclass(frozen=True, slots=True)
class Replacement:
    """Characters of a text that give way to others; where it ends as it starts, they are inserted."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch:
    """One change of the user's configuration."""

    setting: str
    spelled: str
    file: str | None
    line: int | None
    before: str | None
    after: str | None
    safety: Safety
    instead: Message = NOTHING
    """What to do in words, where it is no setting that changes."""
    published: bool = False
    """Whether it is an advice in circulation that does not hold here."""
    effect: Message = NOTHING
    """What it is expected to do, and on what basis."""
    host_bytes: tuple[int, int] | None = None
    """Expected change of host memory, least and most, where it could be computed."""
    gpu_bytes: int | None = None
    """Expected change on one GPU, where it could be computed."""
    cost: Message = NOTHING
    side_effects: tuple[Message, ...] = ()
    note: Message = NOTHING
    """For whom it holds: the spelling per version range where the version is unknown."""
    diff: str = ""
    """Unified diff of the user's file, or empty."""
    replacements: tuple[Replacement, ...] = ()
    """The same change by offsets into `base`, in ascending order."""
    base: str = field(default="", repr=False, compare=False)
    """Text of the file as it was analysed."""

    @property
    def named(self) -> Message:
        """What changes, as it is shown: the setting in its spelling, or the words in place of it."""
        return self.instead or quoted(self.spelled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A cause, how sure the doctor is, and what that rests on."""

    cause: str
    title: Message
    confidence: float
    summary: Message
    evidence: tuple[Quote, ...] = ()
    against: tuple[Quote, ...] = ()
    missing: tuple[Missing, ...] = ()
    patches: tuple[Patch, ...] = ()
    explained_by: str | None = None
    """The finding of which this one is a secondary failure."""
    axis: Axis = "consumer"
    """What it says of the incident; findings of one kind compete within their axis."""
    score: float = 0.0
    """Log-odds by its own evidence: the rule's prior and the weights that hold."""
    odds: float = 0.0
    """Log-odds among its rivals and something else, before calibration."""
    next_step: Message = NOTHING
    """What to do now, where no setting cures it."""
    check: Message = NOTHING
    """How to see it by hand."""
    differs: Message = NOTHING
    """How to distinguish this cause from the first finding's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuledOut:
    """A cause that was looked at and excluded by a fact."""

    cause: str
    because: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One line of the ledger: who holds how many bytes, and by which figure."""

    part: Message
    bytes: int
    basis: Message
    is_rest: bool = False
    """Whether it is what no other row explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Everything the doctor has to say about what a run left behind; as text, its verdict in one line.

    Example:
        >>> from rlhfdoctor import analyze
        >>> report = analyze("samples/ray-segfault/run").to_dict()
        >>> report["verdict"], report["killer"], report["findings"][0]["cause"]
        ('cause', 'sigsegv', 'other-software-error')
    """

    sources: tuple[str, ...]
    verdict: Verdict
    death: Death | None
    framework: Framework | None
    findings: tuple[Finding, ...] = ()
    ruled_out: tuple[RuledOut, ...] = ()
    ledger: tuple[Part, ...] = ()
    explained: Explanation | None = None
    gaps: tuple[Gap, ...] = ()
    timeline: tuple[Event, ...] = ()
    settings: tuple[Setting, ...] = ()
    axes: Axes = field(default_factory=Axes)
    coverage: Coverage = field(default_factory=Coverage)
    unrecognised: tuple[Event, ...] = ()
    """Lines that read like a failure and that no pattern knows."""
    differences: Differences = field(default_factory=Differences)
    options: tuple[str, ...] = ()
    """By which a command read the sources, as a shell takes them (`--config FILE`), for the command to follow it."""

    @property
    def best(self) -> Finding | None:
        """The first finding, or None."""
        return self.findings[0] if self.findings else None

    def to_dict(self) -> dict[str, Any]:
        """The report of `doctor analyze --format json` as plain types, in English; its form is report.schema.json."""
        from rlhfdoctor.report import json

        return json.to_dict(self)

    def __str__(self) -> str:
        from rlhfdoctor.report.phrasing import verdict_line

        return str(verdict_line(self))
