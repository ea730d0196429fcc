"""Options of one recording: DIR/orders.json, written by the process that starts the recorder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.files.write import replace

_MOST_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderConfig:
    """Options of one recorder."""

    name: str
    node: str = ""
    """Of the cluster, as the report shows it."""
    command: tuple[str, ...] = ()
    stdout: str = ""
    """Where the command's output goes; one file for both streams if they were the same before."""
    stderr: str = ""
    streams: tuple[int, ...] = ()
    """Where `stdout` is empty: descriptors of ours that the command writes to itself."""
    pids: tuple[int, ...] = ()
    ignore: tuple[int, ...] = ()
    """PIDs excluded from tracking (the watcher)."""
    cgroup: str | None = None
    """Folder of a cgroup."""
    interval_s: float = 1.0
    alert_at_s: float = 600.0
    alert_command: str | None = None
    port: int | None = None
    """Of the Prometheus page on 127.0.0.1."""
    metrics: tuple[str, ...] = ()
    """host:port of vLLM servers."""


def write_config(folder: str, config: RecorderConfig) -> None:
    """Raises OSError if the folder cannot be written."""
    text = json.dumps(asdict(config), indent=1)  # the command may hold secrets: it is its owner's only
    replace(f"{folder}/orders.json", text.encode("utf-8", "surrogateescape"), real=True)


def read_config(folder: str) -> RecorderConfig:
    """The options; raises OSError or ValueError if they are missing or damaged."""
    values = json.loads(read_bytes(f"{folder}/orders.json", _MOST_BYTES, follow=False))
    lists = ("command", "streams", "pids", "ignore", "metrics")
    fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in values.items()}
    return RecorderConfig(**fields)
