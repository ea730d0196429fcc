"""Ray's names without asking Ray: raylet command lines, first lines of worker logs.

    raylet --session_dir=/tmp/ray/session_2026... --node_ip_address=10.0.0.4 --object_store_memory=...
    logs/worker-<worker id>-<job id>-<pid>.out:   :job_id:01000000
                                                  :actor_name:ActorModelRayActor

ray/_private/ray_constants.py (LOG_PREFIX_ACTOR_NAME), ray/_private/node.py for the flags. Reading
them costs the cluster nothing and works when its GCS is gone.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection
from dataclasses import dataclass

from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.files.walk import names_in

_FLAG = re.compile(r"--(session_dir|node_ip_address|object_store_memory|node_id|raylet-name|temp_dir)[= ](\S+)")
_ACTOR = re.compile(rb"^:actor_name:(.+)$", re.MULTILINE)
_TASK = re.compile(rb"^:task_name:(.+)$", re.MULTILINE)
_DRIVER = re.compile(r"^python-core-driver-[0-9a-f]+_(\d+)\.log$")
MOST_LOGS = 20_000
"""Names of a session's logs that are looked at; who starts a raylet decides how many there are."""
_MOST_DRIVERS = 1000
_MOST_BYTES = 8 << 20
"""Read of a session's logs at one look; what is left waits for the next one."""
_HEAD_BYTES, _LEAST_BYTES = 1 << 16, 1 << 12
"""Read of a file, and what one counts that holds less: opening it costs, too."""
_NAME_BYTES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class RayNode:
    """One raylet on this machine, from its command line."""

    pid: int
    session: str | None
    """Folder of the session."""
    address: str | None
    """IP address of the node."""
    store_bytes: int | None
    """Size of the object store."""


def find_node(pid: int, command: str) -> RayNode | None:
    """The node of a raylet's command line; None for other programs.

    >>> find_node(7, "/x/raylet/raylet --session_dir=/tmp/ray/s --node_ip_address=10.0.0.4 --object_store_memory=9")
    RayNode(pid=7, session='/tmp/ray/s', address='10.0.0.4', store_bytes=9)
    """
    if os.path.basename(command.split(" ", 1)[0]) != "raylet":
        return None
    flags = dict(_FLAG.findall(command))
    store = flags.get("object_store_memory", "")
    return RayNode(
        pid=pid,
        session=flags.get("session_dir"),
        address=flags.get("node_ip_address"),
        store_bytes=int(store) if store.isdecimal() and len(store) <= 18 else None,
    )


class SessionNames:
    """Names of the workers of one session; a file is read again if it changed, until it names an actor."""

    def __init__(self, session: str, root: str = "", owners: Collection[int] = ()) -> None:
        """`session` is the folder that the raylet names, `owners` whose files in it are read."""
        self._logs, self._owners = f"{root}{session}/logs", owners
        self._known: dict[int, str] = {}
        self._seen: dict[str, tuple[int, int] | None] = {}
        """File -> its size and time when it was read; None: it holds nothing new."""
        self.drivers: set[int] = set()
        """Pids that connected to the cluster as drivers."""

    def read(self) -> dict[int, str]:
        """Pid -> actor or task name, for all workers that have one so far."""
        try:
            names = names_in(self._logs, MOST_LOGS)
        except OSError:
            return self._known
        before, self._seen = self._seen, {}
        left = _MOST_BYTES
        for name in names:
            if driver := _DRIVER.match(name):
                if len(self.drivers) < _MOST_DRIVERS:
                    self.drivers.add(int(driver[1]))
            elif name.startswith("worker-") and name.endswith(".out"):
                left -= self._look_at(name, before.get(name, (-1, -1)), left)
        for pid in list(self._known)[:-MOST_LOGS]:
            del self._known[pid]
        return self._known

    def _look_at(self, name: str, before: tuple[int, int] | None, left: int) -> int:
        """Takes the name that a worker's file holds, if it changed; what was read of the bytes that are left."""
        path, now = f"{self._logs}/{name}", before
        if before is not None:
            with contextlib.suppress(OSError):
                info = os.stat(path, follow_symlinks=False)
                now = info.st_size, info.st_mtime_ns
        if now == before or left <= 0:
            self._seen[name] = before
            return 0
        data = b""
        with contextlib.suppress(OSError):
            data = read_bytes(path, _HEAD_BYTES, follow=False, owners=self._owners)
        match = _ACTOR.search(data) or _TASK.search(data)
        pid = name[:-4].rsplit("-", 1)[-1]
        if match is not None and pid.isdecimal():
            self._known[int(pid)] = match[1][:_NAME_BYTES].decode("utf-8", "replace").strip()
            if match.re is _ACTOR:
                now = None
        self._seen[name] = now
        return max(len(data), _LEAST_BYTES)
