"""Files of the kernel that are read at every tick, through descriptors that are kept."""

from __future__ import annotations

import os


class KeptFiles:
    """Opening, looking a path up and closing cost as much as the reading itself."""

    def __init__(self) -> None:
        """Opens nothing yet."""
        self._handles: dict[str, int] = {}

    def read(self, path: str, limit_bytes: int = 1 << 20) -> bytes | None:
        """The file as it is now, or None where it is absent or not readable: a cgroup that was removed gives ENODEV."""
        handle = self._handles.get(path)
        try:
            if handle is None:
                handle = self._handles[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            data = os.pread(handle, limit_bytes, 0)
            while 0 < len(data) < limit_bytes:  # at most a page or so a read for some files
                more = os.pread(handle, limit_bytes - len(data), len(data))
                if not more:
                    break
                data += more
            return data
        except OSError:
            self._drop(path)
            return None

    def _drop(self, path: str) -> None:
        handle = self._handles.pop(path, None)
        if handle is not None:
            os.close(handle)

    def close(self) -> None:
        """Gives the descriptors back."""
        for path in list(self._handles):
            self._drop(path)
