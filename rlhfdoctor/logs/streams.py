"""Bytes of any origin -> text in UTF-8: decompression by ending or by the first bytes, encodings, binary files."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
from collections.abc import Iterator
from typing import IO, Any

READ_BYTES = 512 * 1024


class Binary(Exception):
    """The stream is no text."""


class ZstdError(ValueError):
    """zstandard's error under a name that is always there."""


_GZIP, _ZSTD = (".gz", ".tgz"), (".zst", ".zstd", ".tzst")
_BZIP2, _XZ = (".bz2", ".tbz2"), (".xz", ".txz")


def is_compressed(name: str) -> bool:
    """Whether a file is not what it looks like, by its name's ending."""
    return name.lower().endswith((*_GZIP, *_ZSTD, *_BZIP2, *_XZ))


def decompressed(raw: IO[bytes], lower: str) -> Any:
    """A reader of the plain bytes, by the name's ending in lower case."""
    if lower.endswith(_GZIP):
        return gzip.GzipFile(fileobj=raw)
    if lower.endswith(_ZSTD):
        return _zstd(raw)
    if lower.endswith(_BZIP2):
        import bz2

        return bz2.BZ2File(raw)
    if lower.endswith(_XZ):
        return lzma.LZMAFile(raw)
    return raw


def _zstd(raw: IO[bytes]) -> Any:
    import zstandard

    class Reader:
        """Consecutive frames; unlike zstandard's own reader it notices a last frame that is cut."""

        def __init__(self) -> None:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._rest, self._begun = b"", False

        def read(self, _size: int = -1) -> bytes:
            try:
                while True:
                    data = self._rest or raw.read(READ_BYTES // 4)
                    self._rest = b""
                    if not data:
                        if self._begun:
                            raise EOFError("the last frame is cut")
                        return b""
                    self._begun = True
                    out = bytes(self._frame.decompress(data))
                    if self._frame.eof:
                        self._rest, self._begun = self._frame.unused_data, False
                        self._frame = zstandard.ZstdDecompressor().decompressobj()
                    if out:
                        return out
            except zstandard.ZstdError as error:
                raise ZstdError(f"damaged or truncated archive ({error})") from None

    return Reader()


def pieces(handle: Any) -> Iterator[bytes]:
    """Blocks of a stream until its end."""
    read = getattr(handle, "read1", handle.read)  # what a cut archive still gives, before its error
    while piece := read(READ_BYTES):
        yield piece


def decoded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-8 for UTF-16 and UTF-32 with a mark, or UTF-16 that shows by its zero bytes; raises for binary."""
    first = next(pieces, b"")
    encoding = None
    if first.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        encoding = "utf-32"
    elif first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in first.lstrip(b"\0")[:4096]:
        zeros = (first[0:4096:2].count(0), first[1:4096:2].count(0))
        half = min(len(first), 4096) // 2
        if zeros[1] > half * 0.4 and zeros[0] < half * 0.05:
            encoding = "utf-16-le"
        elif zeros[0] > half * 0.4 and zeros[1] < half * 0.05:
            encoding = "utf-16-be"
        elif _looks_binary(first.lstrip(b"\0")[:4096]):
            raise Binary
    elif _looks_binary(first.lstrip(b"\0")[:4096]):
        raise Binary
    if encoding is None:
        yield first
        yield from pieces
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first).encode("utf-8", "replace")
    for piece in pieces:
        yield decoder.decode(piece).encode("utf-8", "replace")


def _looks_binary(head: bytes) -> bool:
    """Whether more than a twentieth of the bytes are control characters that no log holds.

    Leading zeros are no sign: copytruncate rotation leaves a hole at the start of a log.
    """
    controls = sum(head.count(bytes([c])) for c in (*range(7), *range(14, 26), 127))
    return controls > max(len(head) // 20, 8)


def sniffed(raw: IO[bytes]) -> Iterator[bytes]:
    """The text of a nameless stream, decompressed by its first bytes."""
    head = raw.read(4)
    joined = io.BufferedReader(_Joined(head, raw), READ_BYTES)
    for magic, ending in ((b"\x1f\x8b", ".gz"), (b"\x28\xb5\x2f\xfd", ".zst"), (b"BZh", ".bz2"), (b"\xfd7zX", ".xz")):
        if head.startswith(magic):
            yield from decoded(pieces(decompressed(joined, ending)))
            return
    yield from decoded(pieces(joined))


class _Joined(io.RawIOBase):
    """Bytes already read, then the stream that they came from."""

    def __init__(self, head: bytes, raw: IO[bytes]) -> None:
        self._head, self._raw = head, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data, self._head = self._head[: len(buffer)], self._head[len(buffer) :]
        if len(data) < len(buffer):
            data += getattr(self._raw, "read1", self._raw.read)(len(buffer) - len(data))
        buffer[: len(data)] = data
        return len(data)
