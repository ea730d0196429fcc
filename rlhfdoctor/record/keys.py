"""Keys that are pressed while the live view is shown."""

from __future__ import annotations

import os
import select
import termios
import tty
from types import TracebackType


class Keys:
    """The terminal on standard input, a key at a time; none where it is no terminal, or another program has it.

    The command of a run reads no terminal (record/start.py), so no key is taken from it.
    """

    def __init__(self, descriptor: int = 0) -> None:
        self._descriptor = descriptor
        self._before: list[object] | None = None

    def __enter__(self) -> Keys:
        """Without echo and without waiting for the end of a line; Ctrl-C and Ctrl-Z do what they do."""
        try:
            if self._is_ours():
                before = termios.tcgetattr(self._descriptor)
                tty.setcbreak(self._descriptor, termios.TCSADRAIN)
                self._before = before
        except (OSError, termios.error):
            pass
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None and self._is_ours():
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)  # type: ignore[arg-type]

    @property
    def are_read(self) -> bool:
        """Whether a key would be seen."""
        return self._before is not None

    def pressed(self) -> str:
        """The keys since the last call, in small letters; never waits."""
        if self._before is None or not self._is_ours():
            return ""
        try:
            if not select.select([self._descriptor], [], [], 0)[0]:
                return ""
            return os.read(self._descriptor, 64).decode("utf-8", "replace").lower()
        except OSError:
            return ""

    def _is_ours(self) -> bool:
        """A process in the background would be stopped by reading it."""
        try:
            return os.tcgetpgrp(self._descriptor) == os.getpgrp()
        except OSError:
            return False
