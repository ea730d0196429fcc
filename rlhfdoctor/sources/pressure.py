"""/proc/pressure/memory or a cgroup's memory.pressure: how long tasks waited for memory (PSI).

    some avg10=0.00 avg60=0.00 avg300=0.00 total=76879
    full avg10=0.00 avg60=0.00 avg300=0.00 total=60773

Documentation/accounting/psi.rst; `total` is in microseconds. PSI rises when page cache has to be
reclaimed; an anonymous allocation at the limit dies without it, so it is a hint and no alarm.
"""

from __future__ import annotations

import os
from typing import NamedTuple


class Pressure(NamedTuple):
    """Time lost to memory, some = at least one task waited, full = all of them."""

    some_ratio: float
    """Share of the last ten seconds."""
    full_ratio: float
    some_us: int
    """Since boot."""
    full_us: int


def parse_pressure(data: bytes) -> Pressure | None:
    """None if the text is not from PSI (the kernel may be built without it).

    >>> parse_pressure(b"some avg10=1.50 avg60=0 avg300=0 total=7\\nfull avg10=0.00 avg60=0 avg300=0 total=3\\n")
    Pressure(some_ratio=0.015, full_ratio=0.0, some_us=7, full_us=3)
    """
    rows: dict[str, tuple[float, int]] = {}
    for line in data.decode("ascii", "replace").splitlines():
        kind, _, rest = line.partition(" ")
        fields = dict(part.split("=", 1) for part in rest.split() if "=" in part)
        try:
            rows[kind] = (float(fields["avg10"]) / 100, int(fields["total"]))
        except (KeyError, ValueError):
            continue
    if "some" not in rows:
        return None
    some, full = rows["some"], rows.get("full", (0.0, 0))
    return Pressure(some[0], full[0], some[1], full[1])


def open_trigger(path: str, stall_us: int = 50_000, window_us: int = 1_000_000) -> int | None:
    """A descriptor that polls POLLPRI when tasks stalled that long within a window; None where not allowed.

    Without CAP_SYS_RESOURCE only windows of whole two seconds are taken (kernel 6.4, psi.rst).
    """
    for window in (window_us, 2_000_000):
        try:
            handle = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            os.write(handle, f"some {stall_us} {window}\0".encode())
            return handle
        except OSError:
            os.close(handle)
    return None
