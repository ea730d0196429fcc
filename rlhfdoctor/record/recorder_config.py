"""Options of one recording: DIR/orders.json, written by the process that starts the recorder."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import Any


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
    path = f"{folder}/orders.json"
    fresh = (
        f"{path}.{os.getpid()}"  # whole or not at all: a second recorder may be started here while the first one writes
    )
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)  # the command may hold secrets
    with open(handle, "w", encoding="utf-8") as file:
        json.dump(asdict(config), file, indent=1)
    os.replace(fresh, path)


def read_config(folder: str) -> RecorderConfig:
    """The options; raises OSError or ValueError if they are missing or damaged."""
    with open(os.path.join(folder, "orders.json"), encoding="utf-8") as handle:
        values = json.load(handle)
    lists = ("command", "pids", "ignore", "metrics")
    fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in values.items()}
    return RecorderConfig(**fields)
