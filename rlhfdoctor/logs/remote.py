"""Files that fsspec reaches: `s3://bucket/run`, `gs://`, `hdfs://`, `file:///mnt/nfs/run`."""

from __future__ import annotations

import functools
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePosixPath
from typing import IO, Any

from rlhfdoctor.errors import SourceError
from rlhfdoctor.faults import Answer, attempt, described
from rlhfdoctor.i18n.message import say
from rlhfdoctor.privacy.secrets import shortened

_URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_BLOCK_BYTES = 8 * 1024**2
"""Of one request: object storage answers each only after some tens of milliseconds."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """One file of a storage."""

    name: str
    """Its whole address."""
    size_bytes: int | None
    modified: float | None
    """Unix seconds."""
    open: Callable[[], IO[bytes]]


def is_remote(name: str) -> bool:
    """Whether a path is the address of a storage."""
    return _URL.match(name) is not None


def find_remote(url: str) -> Iterator[RemoteFile]:
    """The files below an address in the order of their names, hidden ones left out; the file itself, where it is one.

    Raises:
        SourceError: fsspec or the storage's own package is not installed, nothing is there, or it may not be read.
    """
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise SourceError(say("{url}: addresses need fsspec: pip install 'rlhfdoctor[remote]'", url=url)) from None

    def look() -> tuple[Any, str, dict[str, Any]]:
        storage, top = url_to_fs(url)
        alone = not url.endswith("/") and storage.isfile(top)  # over HTTP a listing is a file, too
        return storage, top, {top: storage.info(top)} if alone else storage.find(top, detail=True)

    storage, top, found = _asked(look, functools.partial(_source_error, url))
    if not found:
        raise SourceError(say("{url}: no file there, or no right to list it", url=url))
    for path, info in sorted(found.items()):
        inner = PurePosixPath(path[len(top) :].lstrip("/"))
        if not any(part.startswith(".") for part in inner.parts):
            name = storage.unstrip_protocol(path)
            yield RemoteFile(name, info.get("size"), _time_of(info), _opener(storage, path))


def _asked(ask: Callable[[], Answer], ours: Callable[[Exception], Exception]) -> Answer:
    """What a storage gives, or an error of ours: each has errors of its own (no credentials, no route, no bucket)."""
    answer = attempt(ask)
    if isinstance(answer, Exception):
        raise ours(answer) from None
    return answer


def _source_error(url: str, error: Exception) -> SourceError:
    first = shortened((str(error).strip().splitlines() or [""])[0], 300)
    return SourceError(say("{url}: {why}", url=url, why=first or type(error).__name__))


def _os_error(error: Exception) -> OSError:
    return error if isinstance(error, OSError) else OSError(described(error))


def _opener(storage: Any, path: str) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        file = _asked(functools.partial(storage.open, path, "rb", block_size=_BLOCK_BYTES), _os_error)
        return io.BufferedReader(_Raw(file), _BLOCK_BYTES // 16)

    return opened


class _Raw(io.RawIOBase):
    """A storage's reader, whose errors are those of a file."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return bool(self._inner.seekable())

    def seek(self, offset: int, whence: int = 0) -> int:
        return int(_asked(functools.partial(self._inner.seek, offset, whence), _os_error))

    def tell(self) -> int:
        return int(self._inner.tell())

    def readinto(self, buffer: Any) -> int:
        data = _asked(functools.partial(self._inner.read, len(buffer)), _os_error)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._inner.close()
        super().close()


def _time_of(info: dict[str, Any]) -> float | None:
    """When a file was last written; each storage has a name of its own for it."""
    for name in ("mtime", "LastModified", "last_modified", "modified", "updated"):
        value = info.get(name)
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str):
            try:
                return datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
            except ValueError:
                continue
    return None
