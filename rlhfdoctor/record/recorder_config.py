"""Options of one recording, which the recorder takes from the process that starts it, by a descriptor.

DIR/orders.json has them for who comes back to it with `--attach`: no one runs what it says, since who may write a
folder above can put another one in the place of DIR.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.files.write import replace
from rlhfdoctor.privacy.secrets import cut_words

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


def pass_config(config: RecorderConfig) -> int:
    """A descriptor to be inherited, of memory with the options; raises OSError if there is none."""
    handle = os.memfd_create("orders")
    with os.fdopen(os.dup(handle), "wb") as file:
        file.write(_encoded(config))
    return handle


def take_config(descriptor: int) -> RecorderConfig:
    """The options that `pass_config` wrote; closes the descriptor."""
    with os.fdopen(descriptor, "rb") as file:
        file.seek(0)
        return _decoded(file.read(_MOST_BYTES))


def write_config(folder: str, config: RecorderConfig) -> None:
    """For who attaches; raises OSError if the folder cannot be written.

    Secrets of the command are cut, and the alert command, which may hold a key, is left out.
    """
    command = tuple(cut_words(config.command))
    shown = dataclasses.replace(config, command=command, streams=(), alert_command=None)
    replace(f"{folder}/orders.json", _encoded(shown), real=True)


def read_config(folder: str) -> RecorderConfig:
    """What `write_config` wrote; raises OSError or ValueError if it is missing or damaged."""
    return _decoded(read_bytes(f"{folder}/orders.json", _MOST_BYTES, follow=False))


def _encoded(config: RecorderConfig) -> bytes:
    return json.dumps(asdict(config), indent=1).encode("utf-8", "surrogateescape")


def _decoded(data: bytes) -> RecorderConfig:
    values = json.loads(data)
    lists = ("command", "streams", "pids", "ignore", "metrics")
    fields: dict[str, Any] = {key: tuple(value) if key in lists else value for key, value in values.items()}
    return RecorderConfig(**fields)
