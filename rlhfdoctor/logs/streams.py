"""Bytes of any origin -> text in UTF-8: decompression by ending or by the first bytes, encodings, binary files."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import re
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

READ_BYTES = 512 * 1024
_UNSUSPICIOUS_BYTES = 256 * 1024**2
_MOST_RATIO = 1000
"""gzip reaches 1,030 with nothing but one letter; logs are packed to a thirtieth."""
_XZ_BYTES = 128 * 1024**2
"""xz -9 needs 65 MiB to decompress."""
_MOST_EMPTY = 10_000
"""Frames of one file without content: rotation by size or a logger that starts again leaves a few."""
_MOST_SILENT_BYTES = 1024**2
"""Of a gzip file without text: names in front of members, members without content, which are read byte by byte."""
_LEAST_PIECE = 64 * 1024
_ZSTD_INPUT_BYTES = 2048
"""At most 64 MiB of text."""


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
    """A reader of the plain bytes, by the name's ending in lower case; it holds a few MiB of them, whatever comes.

    Reading raises a ValueError where the text is so much larger than the file that it is no log.
    """
    if lower.endswith(_GZIP) and _may_be_gzip(raw):
        return _Expanded(raw, _gzip)
    if lower.endswith(_ZSTD):
        return _Expanded(raw, _zstd)
    if lower.endswith(_BZIP2):
        import bz2

        return _Expanded(raw, lambda counted: _Frames(counted, bz2.BZ2Decompressor))
    if lower.endswith(_XZ):
        return _Expanded(raw, lambda counted: _Frames(counted, lambda: lzma.LZMADecompressor(memlimit=_XZ_BYTES)))
    return raw


def _gzip(raw: _Counted) -> gzip.GzipFile:
    raw.text_at = 0
    return gzip.GzipFile(fileobj=cast("IO[bytes]", raw))


def _may_be_gzip(raw: IO[bytes]) -> bool:
    """Whether a file is what its ending says: browsers and proxies unpack a download and keep its name."""
    peek = getattr(raw, "peek", None)
    head = peek(2)[:2] if peek is not None else b""
    return len(head) < 2 or head == b"\x1f\x8b"


class _Expanded:
    """A decompressor, and how much it makes of how little."""

    def __init__(self, raw: IO[bytes], make: Callable[[_Counted], Any]) -> None:
        self._packed = _Counted(raw)
        self._plain = make(self._packed)
        self._read = getattr(self._plain, "read1", self._plain.read)  # what a cut archive still gives, before its error
        self._count = 0

    def read(self, size: int = READ_BYTES) -> bytes:
        """At most so many bytes; nothing at the end."""
        data: bytes = self._read(size)
        self._count += len(data)
        if self._packed.text_at is not None:
            self._packed.text_at = self._packed.count
        if self._count > _UNSUSPICIOUS_BYTES and self._count > _MOST_RATIO * self._packed.count:
            raise ValueError(f"unpacks to more than {_MOST_RATIO:,} times its size; the rest was not read")
        return data


class _Emptiness:
    """Counts the frames of a file that hold nothing: each costs as much time as many lines do."""

    def __init__(self) -> None:
        self._empty_count = self._before = 0

    def ended(self, plain_count: int) -> None:
        """A frame has ended where so many plain bytes were made of the file; ValueError after too many empty ones."""
        self._empty_count += plain_count == self._before
        self._before = plain_count
        if self._empty_count > _MOST_EMPTY:
            raise ValueError(f"more than {_MOST_EMPTY:,} frames without content; the rest was not read")


class _Counted:
    """A raw stream that knows how much was taken of it."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self.count = self._single_count = 0
        self.text_at: int | None = None
        """How much had been taken when there was text last, if that has a bound."""

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        self.count += len(data)
        self._single_count += size == 1
        if self.text_at is not None and max(self.count - self.text_at, self._single_count) > _MOST_SILENT_BYTES:
            raise ValueError(f"more than {_MOST_SILENT_BYTES >> 20} MiB of it hold no text; the rest was not read")
        return data


class _Frames:
    """Consecutive frames by one of the library's decompressors."""

    def __init__(self, raw: _Counted, make: Callable[[], Any]) -> None:
        self._raw, self._make = raw, make
        self._frame = make()
        self._rest, self._is_begun = b"", False
        self._frames, self._count = _Emptiness(), 0

    def read(self, size: int) -> bytes:
        while True:
            if self._frame.eof:
                self._rest, self._is_begun = self._frame.unused_data.lstrip(b"\0"), False  # xz pads with zeros
                self._frame = self._make()
                self._frames.ended(self._count)
            needs = self._frame.needs_input and not self._rest
            data = self._rest or (self._raw.read(READ_BYTES // 8) if needs else b"")
            self._rest = b""
            if needs and not data:
                if self._is_begun:
                    raise EOFError("the last frame is cut")
                return b""
            self._is_begun = True
            plain: bytes = self._frame.decompress(data, size)
            self._count += len(plain)
            if plain:
                return plain


def _zstd(raw: _Counted) -> Any:
    import zstandard

    class Reader:
        """Consecutive frames; unlike zstandard's own reader it notices a last frame that is cut.

        Four bytes may stand for 128 KiB (a block of one byte), and a decompressor gives all at once: it gets little.
        """

        def __init__(self) -> None:
            self._frame = zstandard.ZstdDecompressor().decompressobj()
            self._rest, self._begun = b"", False
            self._plain = bytearray()
            self._frames, self._count = _Emptiness(), 0

        def read(self, size: int) -> bytes:
            try:
                while len(self._plain) < size and self._more():
                    pass
            except (zstandard.ZstdError, EOFError, ValueError) as error:
                if not self._plain:  # else with the next call
                    if not isinstance(error, zstandard.ZstdError):
                        raise
                    raise ZstdError(f"damaged or truncated archive ({error})") from None
            data = bytes(self._plain[:size])
            del self._plain[:size]
            return data

        def _more(self) -> bool:
            data = self._rest or raw.read(_ZSTD_INPUT_BYTES)
            self._rest = b""
            if not data:
                if self._begun:
                    raise EOFError("the last frame is cut")
                return False
            self._begun = True
            plain = self._frame.decompress(data)
            self._count += len(plain)
            self._plain += plain
            if self._frame.eof:
                self._rest, self._begun = self._frame.unused_data, False
                self._frame = zstandard.ZstdDecompressor().decompressobj()
                self._frames.ended(self._count)
            return True

    return Reader()


def pieces(handle: Any) -> Iterator[bytes]:
    """Blocks of a stream until its end; short ones, as a frame each of a file of many, are put together."""
    read = getattr(handle, "read1", handle.read)  # what a cut archive still gives, before its error
    held = bytearray()
    try:
        while piece := read(READ_BYTES):
            if not held and len(piece) >= _LEAST_PIECE:
                yield piece
                continue
            held += piece
            if len(held) >= _LEAST_PIECE:
                yield bytes(held)
                held.clear()
    except Exception:
        if held:
            yield bytes(held)
        raise
    if held:
        yield bytes(held)


_HOLE = re.compile(rb"\0{64,}")
"""No sign of a binary file: copytruncate leaves one before the text, a power loss or a full disk behind it."""


def decoded(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """UTF-8 for UTF-16 and UTF-32 with a mark, or UTF-16 that shows by its zero bytes; raises for binary."""
    first = next(pieces, b"")
    head = _HOLE.sub(b"", first).lstrip(b"\0")[:4096]
    encoding = None
    if first.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        encoding = "utf-32"
    elif first.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif b"\0" in head:
        zeros = (first[0:4096:2].count(0), first[1:4096:2].count(0))
        half = min(len(first), 4096) // 2
        if zeros[1] > half * 0.4 and zeros[0] < half * 0.05:
            encoding = "utf-16-le"
        elif zeros[0] > half * 0.4 and zeros[1] < half * 0.05:
            encoding = "utf-16-be"
        elif _looks_binary(head):
            raise Binary
    elif _looks_binary(head):
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
    """Whether more than a twentieth of the bytes are control characters that no log holds."""
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
