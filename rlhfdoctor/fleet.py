"""What ended each of many runs: one row a run, a table for people or for data frames."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rlhfdoctor import interpreters
from rlhfdoctor.errors import SourceError
from rlhfdoctor.extras import require_polars
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.privacy.controls import numbered
from rlhfdoctor.privacy.secrets import cut_secrets

if TYPE_CHECKING:
    import polars

UNREADABLE = "unreadable"
"""The verdict of a row whose run could not be read."""
FORMS = ("jsonl", "csv", "parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """One run. What is unknown is None."""

    path: str
    verdict: str
    """As in `Incident`, or `UNREADABLE`."""
    title: str | None = None
    """The same in one line."""
    next_step: str | None = None
    """What to do now."""
    cause: str | None = None
    """The first finding, decided or not."""
    confidence: float | None = None
    killer: str | None = None
    framework: str | None = None
    version: str | None = None
    node: str | None = None
    role: str | None = None
    """Of the victim."""
    phase: str | None = None
    step: int | None = None
    began_s: float | None = None
    """First stamp of the recording or of the run's own logs, Unix seconds."""
    ended_s: float | None = None
    """The death, else the last stamp."""
    hosts_count: int | None = None
    node_hours: float | None = None
    """Time from `began_s` to `ended_s` on so many hosts; what a checkpoint saved is not taken off."""
    safe_patches_count: int = 0
    """Of the first finding."""
    fingerprint: str | None = None
    """The same for runs that ended the same way; None where nothing ended badly."""
    same_as: str | None = None
    """Path of the first run with this fingerprint, earlier in this fleet or in the one before."""
    why: str | None = None
    """Of an unreadable run, in English."""


@dataclass(frozen=True, slots=True)
class Group:
    """Runs that ended by one cause, or without a decided one."""

    verdict: str
    cause: str | None
    """None for undecided runs and others."""
    rows: tuple[FleetRow, ...]

    @property
    def node_hours(self) -> float:
        """Of the runs where it is known."""
        return sum(row.node_hours or 0.0 for row in self.rows)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Many runs, in the order in which they were named.

    Example:
        >>> from rlhfdoctor import analyze_each
        >>> fleet = analyze_each(["samples/ray-segfault/run", "samples/ray-healthy/run"], workers=0)
        >>> [(row.verdict, row.cause) for row in fleet.rows]
        [('cause', 'other-software-error'), ('healthy', None)]
        >>> fleet.to_polars().group_by("cause").agg(polars.sum("node_hours"))  # doctest: +SKIP
    """

    rows: tuple[FleetRow, ...]

    @property
    def ended_badly(self) -> list[FleetRow]:
        """Runs with an incident, decided or not."""
        return [row for row in self.rows if row.verdict in ("cause", "undecided")]

    @property
    def groups(self) -> list[Group]:
        """By decided cause, then undecided, inconclusive, unreadable and healthy runs; the costliest first."""
        found: dict[tuple[str, str | None], list[FleetRow]] = {}
        for row in self.rows:
            found.setdefault((row.verdict, row.cause if row.verdict == "cause" else None), []).append(row)
        order = ("cause", "undecided", "inconclusive", UNREADABLE, "healthy")
        groups = [Group(verdict, cause, tuple(rows)) for (verdict, cause), rows in found.items()]
        return sorted(groups, key=lambda group: (order.index(group.verdict), -group.node_hours, -len(group.rows)))

    def after(self, before: Iterable[FleetRow]) -> Fleet:
        """With `same_as` of every row whose fingerprint was seen before, there or earlier in this fleet."""
        first: dict[str, str] = {}
        for row in before:
            if row.fingerprint is not None:
                first.setdefault(row.fingerprint, row.path)
        rows = []
        for row in self.rows:
            seen = first.get(row.fingerprint) if row.fingerprint is not None else None
            is_itself = seen in (row.path, _written(row.path))
            rows.append(replace(row, same_as=None if is_itself else seen))
            if row.fingerprint is not None:
                first.setdefault(row.fingerprint, row.path)
        return Fleet(tuple(rows))

    def to_polars(self) -> polars.DataFrame:
        """One row a run.

        Raises:
            UsageError: polars is not installed.
        """
        require_polars(say("frames of a fleet"))
        import polars as pl

        types = {"str": pl.String, "float": pl.Float64, "int": pl.Int64}
        schema = {field.name: types[str(field.type).partition(" |")[0]] for field in fields(FleetRow)}
        return pl.DataFrame([_fields(row) for row in self.rows], schema=schema)

    def to_jsonl(self) -> str:
        """One JSON object a line."""
        return "".join(json.dumps(_fields(row), ensure_ascii=False) + "\n" for row in self.rows)

    def to_bytes(self, form: str) -> bytes:
        """The rows as `jsonl`, `csv` or `parquet`.

        Raises:
            UsageError: polars is not installed, for Parquet.
        """
        if form == "parquet":
            out = io.BytesIO()
            self.to_polars().write_parquet(out)
            return out.getvalue()
        if form == "csv":
            text = io.StringIO()
            table = csv.DictWriter(text, [field.name for field in fields(FleetRow)], lineterminator="\n")
            table.writeheader()
            table.writerows({key: _cell(value) for key, value in _fields(row).items()} for row in self.rows)
            return text.getvalue().encode()
        return self.to_jsonl().encode()


def _fields(row: FleetRow) -> Mapping[str, Any]:
    """A row as it leaves: names of folders, errors and an earlier fleet's rows are others' text."""
    return {key: _written(value) if isinstance(value, str) else value for key, value in asdict(row).items()}


def _written(text: str) -> str:
    """Without secrets, with control characters shown by their number.

    >>> _written("runs/a"), _written("runs/hf_abcdefghijklmnop\\x1b[31m\\udcff")
    ('runs/a', 'runs/[secret]\\\\u001b[31m\\\\udcff')
    """
    return numbered(cut_secrets(text))


def _cell(value: object) -> object:
    """A spreadsheet computes a text that begins like a formula; behind an apostrophe it shows it.

    >>> _cell("=1+1"), _cell("runs/a"), _cell(-1.5)
    ("'=1+1", 'runs/a', -1.5)
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def unreadable_row(path: str, why: str) -> FleetRow:
    """The row of a run that could not be read."""
    return FleetRow(path=path, verdict=UNREADABLE, why=why)


_MOST_BYTES, _MOST_ROWS = 64 << 20, 100_000
"""Of a fleet that is read, as JSON lines."""
_DECODER_BYTES = 400 << 20
"""Memory of the process that decodes Parquet: a kilobyte of it can unpack to any size."""


def read_fleet(path: str | Path) -> Fleet:
    """A fleet that was written as JSON lines or as Parquet.

    Raises:
        SourceError: it cannot be read, is no fleet or too large for one.
        UsageError: polars is not installed, for Parquet.
    """
    try:
        data = read_bytes(path, _MOST_BYTES + 1)
    except OSError as error:
        raise SourceError(joined(quoted(path), quoted(error.strerror or error), by=": ")) from None
    if data.startswith(b"PAR1") and len(data) <= _MOST_BYTES:
        require_polars(say("Parquet files"))
        (decoded,) = interpreters.answers(f"{__name__}:make_decoder", [], [data], 1)
        data = decoded or b""
    lines = list(islice(io.BytesIO(data), _MOST_ROWS + 1)) if len(data) <= _MOST_BYTES else []
    if len(data) > _MOST_BYTES or len(lines) > _MOST_ROWS:
        raise SourceError(
            say(
                "{path}: too large for a fleet, which has at most {rows:,} runs in {size:bytes}",
                path=str(path),
                rows=_MOST_ROWS,
                size=_MOST_BYTES,
            )
        )
    try:
        rows = tuple(msgspec.json.decode(line, type=FleetRow) for line in lines if line.strip())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        rows = ()
    if not rows:
        raise SourceError(
            say(
                "{path}: no fleet. `doctor analyze --each` writes one with --format json or --out fleet.jsonl",
                path=str(path),
            )
        )
    return Fleet(rows)


def make_decoder() -> interpreters.Answerer:
    """What a worker does with a Parquet file: gives it as JSON lines; nothing of one that is too large or damaged."""
    import resource

    os.environ["POLARS_MAX_THREADS"] = "1"
    resource.setrlimit(resource.RLIMIT_DATA, (_DECODER_BYTES, _DECODER_BYTES))  # beyond it polars ends the process
    import polars as pl

    def decode(data: bytes, _say: Callable[[int], None]) -> bytes:
        try:
            frame = pl.read_parquet(io.BytesIO(data))
            letters = sum(int(frame[name].str.len_bytes().sum()) for name in frame.select(pl.col(pl.String)).columns)
            return frame.write_ndjson().encode() if letters <= _MOST_BYTES and frame.height <= _MOST_ROWS else b""
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return b""

    return decode
