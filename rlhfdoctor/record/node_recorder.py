"""The agent on one node of a cluster: starts the recorder there, hands over what it wrote."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from rlhfdoctor.files.read import open_binary
from rlhfdoctor.files.walk import walk
from rlhfdoctor.record.command import find_ray_pids
from rlhfdoctor.record.recorder_config import RecorderConfig
from rlhfdoctor.record.run_folder import make_folder
from rlhfdoctor.record.start import command_of, describe_run, start_recorder
from rlhfdoctor.trace.follow import Follower

_MOST_BYTES = 8 << 20


class NodeRecorder:
    """Becomes a Ray actor; its name is how a recording knows it (evidence/roles.py)."""

    def clock(self) -> float:
        """This node's wall clock, Unix seconds."""
        return time.time()

    def start(
        self, name: str, node: str, interval_s: float, alert_at_s: float, clock_offset_s: float
    ) -> dict[str, Any]:
        """Starts the recorder on the raylet that this actor belongs to, and everything below it."""
        folder = Path(tempfile.mkdtemp(prefix=f"rlhfdoctor-{node}-"))
        raylet = os.getppid()
        pids = [raylet]
        if siblings := [
            pid for pid in find_ray_pids() if "gcs_server" in command_of(pid)[0] and _session(pid) == _session(raylet)
        ]:
            pids += siblings
        config = RecorderConfig(name=name, node=node, pids=tuple(pids), interval_s=interval_s, alert_at_s=alert_at_s)
        describe_run(make_folder(str(folder), node), config, argv=[], pid=raylet, clock_offset_s=clock_offset_s)
        start_recorder(folder, config, daemon=True)
        return {"folder": str(folder), "raylet": raylet, "host": os.uname().nodename}

    def read(self, folder: str, offsets: dict[str, int]) -> dict[str, tuple[int, bytes]]:
        """New bytes of a run's files after the offsets, at most some MiB per call."""
        return read_files(folder, offsets)

    def clean(self, folder: str) -> None:
        """Deletes a run that was copied completely."""
        shutil.rmtree(folder, ignore_errors=True)

    def stop(self, folder: str) -> None:
        """Requests the recorder to end."""
        follower = Follower(folder)
        follower.read()
        recorder = follower.header.get("pid")
        if isinstance(recorder, int):
            os.kill(recorder, signal.SIGTERM)


def _session(pid: int) -> str:
    """The session folder in a Ray service's command line."""
    words = " ".join(command_of(pid))
    at = words.find("/session_")
    return words[at : at + 40] if at >= 0 else ""


def read_files(folder: str, offsets: dict[str, int]) -> dict[str, tuple[int, bytes]]:
    """File below the folder -> (offset, new bytes); copies of truncated logs start again at 0."""
    found: dict[str, tuple[int, bytes]] = {}
    left = _MOST_BYTES
    for path in (Path(file.path) for _, files in walk(folder) for file in files):
        name = str(path.relative_to(folder))
        if not path.is_file() or name in ("lock", "orders.json") or left <= 0:
            continue
        start = offsets.get(name, 0)
        size = path.stat().st_size
        start = 0 if size < start else start
        if size == start:
            continue
        with open_binary(path, follow=False) as file:
            file.seek(start)
            data = file.read(left)
        left -= len(data)
        found[name] = (start, data)
    return found
