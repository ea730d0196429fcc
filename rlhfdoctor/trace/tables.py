"""`read_trace`: a trace as polars frames, pandas frames or Parquet files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhfdoctor.errors import SourceError
from rlhfdoctor.extras import require_polars
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.trace.node import Columns, NodeTrace
from rlhfdoctor.trace.read import find_nodes, read_node
from rlhfdoctor.trace.record import StoredEvent, record_of, time_of
from rlhfdoctor.trace.schema import NULL, scale_of
from rlhfdoctor.types import Gap
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Record, RecordField

if TYPE_CHECKING:
    import pandas
    import polars

_IDENTITY: dict[str, tuple[RecordField, ...]] = {
    "process": (R.pid, R.name, R.role),
    "mapping": (R.pid, R.name, R.role),
    "probe": (R.pid, R.name, R.role),
    "cgroup": (R.path,),
    "limit": (R.name, R.level),
}
_WHOLE: frozenset[RecordField] = frozenset({R.pid})
"""Those that are numbers; the others are text."""
_IDENTIFYING: dict[Record | None, str] = {
    RECORD.process.seen: "process",
    RECORD.process.named: "process",
    RECORD.cgroup.seen: "cgroup",
    RECORD.limit.seen: "limit",
}
"""Events that name a row -> its table."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded run, of one node or several.

    Example:
        >>> trace = read_trace("samples/recorded-leak/run")
        >>> "process" in trace.names
        True
        >>> trace["process"].filter(polars.col("role") == "actor")  # doctest: +SKIP
    """

    nodes: tuple[NodeTrace, ...]

    @property
    def run(self) -> Mapping[str, Any]:
        """run.json: command line, versions, limits, configuration files with their hashes."""
        return self.nodes[0].run

    @property
    def events(self) -> list[dict[str, Any]]:
        """What happened, in order of time: processes seen and gone, kills, marks, alarms."""
        found = [(event, node.node) for node in self.nodes for event in node.events]
        found.sort(key=lambda item: time_of(item[0]))
        return [{**{str(key): value for key, value in event.items()}, "node": node} for event, node in found]

    @property
    def gaps(self) -> list[Gap]:
        """What could not be read of the trace."""
        return [gap for node in self.nodes for gap in node.gaps]

    @property
    def names(self) -> list[str]:
        """The tables that hold something: host, process, cgroup, ..."""
        return sorted({name for node in self.nodes for name in node.tables})

    def __getitem__(self, name: str) -> polars.DataFrame:
        """A table with `time`, `node`, what the rows are, and its columns; None is null.

        Raises:
            KeyError: no such table in this trace.
            UsageError: polars is not installed.
        """
        require_polars(say("tables of a recorded run"))
        import polars as pl

        frames = [_frame(node, name, node.tables[name]) for node in self.nodes if name in node.tables]
        if not frames:
            raise KeyError(f"{name}: this trace has {', '.join(self.names)}")
        return pl.concat(frames, how="diagonal").sort("time", maintain_order=True)

    def to_polars(self) -> dict[str, polars.DataFrame]:
        """All tables, by name."""
        return {name: self[name] for name in self.names}

    def to_pandas(self) -> dict[str, pandas.DataFrame]:
        """All tables as pandas frames; pandas comes with the extra `notebooks`."""
        import pandas as pd

        frames = {}
        for name, frame in self.to_polars().items():
            times = pd.to_datetime(frame["time"].to_physical().to_list(), unit="ns", utc=True)
            frames[name] = pd.DataFrame(frame.drop("time").to_dict(as_series=False)).assign(time=times)
        return frames

    def write_parquet(self, folder: str | Path) -> list[Path]:
        """One Parquet file a table, and `events.parquet`.

        Raises:
            SourceError: the folder cannot be written.
            UsageError: polars is not installed.
        """
        require_polars(say("Parquet files"))
        import polars as pl

        target = Path(folder)
        frames = self.to_polars()
        events = [{**event, "detail": str(event)} for event in self.events]
        frames["events"] = pl.DataFrame(
            {key: [event.get(key) for event in events] for key in ("wall_ns", "node", "kind", "detail")}, strict=False
        )
        written = []
        try:
            target.mkdir(parents=True, exist_ok=True)
            for name, frame in frames.items():
                frame.write_parquet(target / f"{name}.parquet")
                written.append(target / f"{name}.parquet")
        except OSError as error:
            raise SourceError(joined(quoted(folder), quoted(error.strerror or error), by=": ")) from None
        return written


def read_trace(path: str | Path, *, every_s: float = 0.0) -> Trace:
    """Reads the folder that `doctor watch` wrote, also while it is being written or after it was cut off.

    Args:
        path: folder of the run; the traces of several nodes below `nodes/` are merged.
        every_s: one sample in this time is enough, but for the last ten minutes.

    Raises:
        SourceError: no trace there.
    """
    folders = find_nodes(path)
    if not folders:
        raise SourceError(
            say("{path}: no trace in it. `doctor watch` writes one to doctor-runs/<time>-<name>/", path=str(path))
        )
    gaps: list[Gap] = []
    nodes: list[NodeTrace] = []
    for folder in folders:
        try:
            nodes.append(read_node(folder, every_s=every_s, share=len(folders)))
        except SourceError as error:
            gaps.append(Gap(what=quoted(folder), why=error.says))
    if not nodes:
        raise SourceError(joined(*(gap.why for gap in gaps)))
    nodes[0].gaps.extend(gaps)
    return Trace(tuple(nodes))


def identities(node: NodeTrace) -> dict[str, dict[int, StoredEvent]]:
    """Table -> key -> what that row is, from the events that name processes, cgroups and limits.

    A process is what it was called last; roles become known after the start.
    """
    found: dict[str, dict[int, StoredEvent]] = {"process": {}, "cgroup": {}, "limit": {}}
    for event in node.events:
        kind = record_of(event)
        if kind in _IDENTIFYING:
            found[_IDENTIFYING[kind]].setdefault(int(event[R.uid]), {}).update(
                {k: v for k, v in event.items() if v is not None}
            )
    return found


def _frame(node: NodeTrace, name: str, table: Columns) -> polars.DataFrame:
    import polars as pl

    offset_ns = int(float(node.run.get("clock_offset_s") or 0.0) * 1e9)
    data: dict[str, Any] = {
        "time": (pl.Series("time", table.times_ns) - offset_ns).cast(pl.Datetime("ns", "UTC")),
        "node": pl.repeat(node.node, len(table.keys), dtype=pl.String, eager=True),
        "mono_s": pl.Series("mono_s", table.mono_ns) / 1e9,
        "uid": pl.Series("uid", table.keys),
    }
    known = identities(node).get("process" if name in ("mapping", "probe") else name, {})
    for field in _IDENTITY.get(name, ()):
        kind = pl.Int64 if field in _WHOLE else pl.String
        known_values = {uid: row.get(field) for uid, row in known.items() if row.get(field) is not None}
        data[str(field)] = (
            data["uid"].replace_strict(list(known_values), list(known_values.values()), default=None, return_dtype=kind)
            if known_values
            else pl.Series(str(field), [None] * len(table.keys), dtype=kind)
        )
    for column, values in table.values.items():
        series = pl.Series(column, values)
        series = series.set(series == NULL, None)
        data[column] = series / scale_of(column) if scale_of(column) != 1 else series
    return pl.DataFrame(data)
