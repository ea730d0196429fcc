"""A connection whose whole answer must be there in time: a socket's own timeout begins again with every byte."""

from __future__ import annotations

import http.client
import socket
import time
from typing import Any


class DeadlineConnection(http.client.HTTPConnection):
    """Of HTTP; `timeout` is for everything, from the connection to the last byte."""

    def connect(self) -> None:
        """Connects, and sets the deadline."""
        deadline = time.monotonic() + float(self.timeout or 0)
        super().connect()
        self.sock = _Socket(self.sock, deadline)


class _Socket(socket.socket):
    def __init__(self, inner: socket.socket, deadline: float) -> None:
        super().__init__(inner.family, inner.type, inner.proto, fileno=inner.detach())
        self._deadline = deadline

    def recv_into(self, *arguments: Any, **more: Any) -> int:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self.settimeout(left)
        return super().recv_into(*arguments, **more)
