"""/dev/kmsg: the kernel log as it is written, without waiting.

    6,1234,5678901234,-;Memory cgroup out of memory: Killed process 42 (python) ...
     SUBSYSTEM=...

Documentation/ABI/testing/dev-kmsg: priority, sequence, microseconds since boot, flags; a line that
starts with a blank continues the record. Often unreadable in a container (dmesg_restrict).
"""

from __future__ import annotations

import os
import re
import time

_ESCAPE = re.compile(rb"\\x(09|[2-9a-f][0-9a-f])(?<!7f)")
"""But for what a screen obeys, or what ends a line: a process's name or a cgroup's path may hold it."""


def parse_record(data: bytes) -> tuple[float, str] | None:
    r"""Seconds since boot and text of one record, or None for what is no record.

    >>> parse_record(b"4,99,12345678,-;Out of memory: Killed process 7 (a\\x0ab)\n KEY=1\n")
    (12.345678, 'Out of memory: Killed process 7 (a\\x0ab)')
    """
    head, mark, text = data.partition(b";")
    parts = head.split(b",")
    if not mark or len(parts) < 3 or not parts[2].isdigit():
        return None
    line = _ESCAPE.sub(lambda m: bytes((int(m[1], 16),)), text.partition(b"\n")[0])
    return int(parts[2]) / 1e6, line.decode("utf-8", "replace")


def show_stamp(seconds: float) -> str:
    """A time as `dmesg --time-format iso` prints it, in UTC.

    >>> show_stamp(1743606120.5)
    '2025-04-02T15:02:00,500000+00:00'
    """
    whole, part = divmod(seconds, 1)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f",{int(part * 1e6):06d}+00:00"


class KernelLog:
    """The records written since it was opened, or those that the kernel still has from some time on."""

    def __init__(self, path: str = "/dev/kmsg", *, since_s: float | None = None) -> None:
        """Opens the log at its end, or where `since_s` (Unix seconds) is given at its start.

        Raises:
            OSError: the kernel log may not be read.
        """
        self._since_s = since_s
        self.fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.lseek(self.fd, 0, os.SEEK_END if since_s is None else os.SEEK_SET)
        except OSError:
            os.close(self.fd)
            raise

    def read(self, most_count: int = 2000) -> list[str]:
        """New lines as `dmesg --time-format iso` prints them; what the kernel overwrote is skipped (EPIPE)."""
        lines: list[str] = []
        for _ in range(most_count):
            try:
                data = os.read(self.fd, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                lines.append("rlhfdoctor: the kernel log ran over; lines were lost here")
                continue
            except OSError:
                break
            record = parse_record(data)
            if record is not None:
                written_s = record[0] + time.time() - time.monotonic()
                if self._since_s is None or written_s >= self._since_s:
                    lines.append(f"{show_stamp(written_s)} {record[1]}")
            elif not data:
                break
        return lines

    def close(self) -> None:
        """Gives the descriptor back."""
        os.close(self.fd)
