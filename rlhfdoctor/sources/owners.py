"""Whose files the recorder reads because a process names them."""

from __future__ import annotations

import os
import re

from rlhfdoctor.sources.procfs import read_file


def owners_of(pid: int, root: str = "") -> tuple[int, ...]:
    """Whose files may be read because a process names them: those of its own user. Anyone's, where we are not root.

    /proc/PID itself belongs to root where the process may not be dumped, which it can choose (proc(5)). Who started a
    set-user-ID program is its real user: he chose what it was given.
    """
    if os.geteuid() != 0:
        return ()
    found = re.search(rb"\nUid:\t(\d+)\t(\d+)", read_file(f"{root}/proc/{pid}/status", 4096) or b"")
    return (int(found[1]) or int(found[2]) if found is not None else -1,)
