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

_FLAG = re.compile(r"--(session_dir|node_ip_address|object_store_memory|node_id|raylet-name|temp_dir)[= ](\S+)")
_ACTOR = re.compile(rb"^:actor_name:(.+)$", re.MULTILINE)
_TASK = re.compile(rb"^:task_name:(.+)$", re.MULTILINE)
_DRIVER = re.compile(r"^python-core-driver-[0-9a-f]+_(\d+)\.log$")


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
    """Names of the workers of one session, each file read once it holds a name."""

    def __init__(self, session: str, root: str = "", owners: Collection[int] = ()) -> None:
        """`session` is the folder that the raylet names, `owners` whose files in it are read."""
        self._logs, self._owners = f"{root}{session}/logs", owners
        self._known: dict[int, str] = {}
        self._seen: set[str] = set()
        self.drivers: set[int] = set()
        """Pids that connected to the cluster as drivers."""

    def read(self) -> dict[int, str]:
        """Pid -> actor or task name, for all workers that have one so far."""
        try:
            names = os.listdir(self._logs)
        except OSError:
            return self._known
        for name in names:
            if name in self._seen:
                continue
            if driver := _DRIVER.match(name):
                self.drivers.add(int(driver[1]))
                self._seen.add(name)
            elif name.startswith("worker-") and name.endswith(".out"):
                pid = name[:-4].rsplit("-", 1)[-1]
                data = b""
                with contextlib.suppress(OSError):
                    data = read_bytes(f"{self._logs}/{name}", 65536, follow=False, owners=self._owners)
                match = _ACTOR.search(data) or _TASK.search(data)
                if match is not None and pid.isdecimal():
                    self._known[int(pid)] = match[1].decode("utf-8", "replace").strip()
                    if match.re is _ACTOR:
                        self._seen.add(name)
        return self._known
