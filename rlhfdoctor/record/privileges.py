"""What root may do though a recorder need not: given up once the command runs, which keeps everything.

See capabilities(7) for what each one allows; they are set per thread, so this comes before the first thread of ours.
"""

from __future__ import annotations

import ctypes
import os

_VERSION_3 = 0x20080522
_KEPT = {
    "dac_read_search": 2,  # files of other users' processes, in folders of theirs
    "ipc_lock": 14,  # memory that stays resident, also what is allocated later
    "sys_ptrace": 19,  # /proc/PID of other users: maps, environ, fd, root
    "sys_resource": 24,  # notifications of memory pressure; the blocks that a file system keeps for root
    "syslog": 34,  # the kernel's log
}


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Sets(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


def drop() -> list[str] | None:
    """Gives up what a recorder does not need; what is left by name, or None where nothing was to be given up.

    A program that it starts (the alert's) is run by root as before.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or not hasattr(libc, "capset"):
        return None
    header, sets = _Header(_VERSION_3, 0), (_Sets * 2)()
    if libc.capget(ctypes.byref(header), sets):
        return None
    for number, part in enumerate(sets):
        mask = sum(1 << bit - 32 * number for bit in _KEPT.values() if bit // 32 == number)
        part.effective &= mask
        part.permitted &= mask
        part.inheritable = 0
    if libc.capset(ctypes.byref(header), sets):
        return None
    return [name for name, bit in _KEPT.items() if sets[bit // 32].effective >> bit % 32 & 1]
