"""Archives and compressed files that unpack to far more than they are."""

from __future__ import annotations

import bz2
import copy
import gzip
import io
import lzma
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from tests.attacks import build
from tests.attacks.build import KILLER, MIB
from tests.attacks.conftest import Doctor
from tests.build import read_folder


def test_zstd_of_repeated_bytes(tmp_path: Path, analyze: Doctor) -> None:
    """Row 8: a 16 kB .log.zst of blocks that repeat a byte is read as a stream; the log beside it keeps its verdict."""
    good = build.good_log(tmp_path / "run")
    build.run_length_zstd(good.with_name("worker.log.zst"), 512 * MIB)
    assert analyze(good.parent).check().killer == KILLER


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA], ids=["bzip2", "lzma"])
def test_zip_member_of_zeros(tmp_path: Path, analyze: Doctor, method: int) -> None:
    """Row 9: a zip of some kB with 512 MiB in one member is read in bounded memory, or refused with a gap."""
    good = build.good_log(tmp_path / "run")
    with zipfile.ZipFile(good.with_name("logs.zip"), "w", method) as out, out.open("x.log", "w") as member:
        for _ in range(512):
            member.write(bytes(MIB))
    assert analyze(good.parent).check().killer == KILLER


def test_zip_members_that_overlap(tmp_path: Path, analyze: Doctor) -> None:
    """A zip of some kB whose directory names one member of 64 MiB 2,000 times is a gap; it took minutes."""
    good = build.good_log(tmp_path / "run")
    path = good.with_name("logs.zip")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out:
        out.writestr("x.log", bytes(64 * MIB))
        (info,) = out.infolist()
        for number in range(2000):
            again = copy.copy(info)
            again.filename = f"{number}.log"
            out.filelist.append(again)
    done = analyze(good.parent).check()
    assert (done.killer, done.gap(path)) == (KILLER, True)


@pytest.mark.parametrize("kind", [b"L", b"x"], ids=["long name", "PAX header"])
def test_tar_with_a_large_extension_header(tmp_path: Path, analyze: Doctor, kind: bytes) -> None:
    """Row 10: a tar whose long name or PAX header takes 256 MiB is a gap, and nothing of it is held."""
    good = build.good_log(tmp_path / "run")
    archive = good.with_name("logs.tar.gz")
    build.extension_tar(archive, kind, 256 * MIB)
    done = analyze(good.parent).check()
    assert (done.killer, done.gap(archive)) == (KILLER, True)


@pytest.mark.parametrize("crowded", [False, True], ids=["200 GiB", "20 million members"])
def test_search_for_a_trace_is_bounded(tmp_path: Path, analyze: Doctor, crowded: bool) -> None:
    """Row 30: the search for a trace in a tar.bz2 of some hundred kB counts bytes and members, and ends with a gap."""
    good, archive = build.good_log(tmp_path / "run"), tmp_path / "logs.tar.bz2"
    if crowded:
        build.crowded_tar(archive, 20_000_000)
    else:
        build.endless_tar(archive, 200)
    done = analyze(good, archive).check()
    assert (done.killer, done.gap(archive)) == (KILLER, True)


def test_deep_member_of_an_archive(tmp_path: Path, home: Path, analyze: Doctor) -> None:
    """Row 22: a member 1,500 folders deep beside a trace costs a gap; the rest is read, and nothing is left unpacked."""
    archive = tmp_path / "logs.tar.gz"
    segment = build.header()
    members = [("run/000001.trace", segment), ("run/" + "d/" * 1500 + "x.log", b"x\n"), ("run/logs/job.log", build.OOM)]
    build.tar_of(archive, members)
    done = analyze(archive).check()
    assert (done.killer, list((home / "tmp").iterdir())) == (build.OOM_KILLER, [])


@pytest.mark.parametrize("kind", [b"L", b"K", b"x", b"g"], ids=["name", "link", "PAX", "global"])
@pytest.mark.parametrize(("count", "size"), [(2000, 512), (200, 900_000)])
def test_chains_of_headers(tmp_path: Path, analyze: Doctor, kind: bytes, count: int, size: int) -> None:
    """A second attack: headers that describe headers, each of which tarfile reads within the one before."""
    folder = build.good_log(tmp_path / "job").parent
    body = b"a" * (size - 1) + b"\0"
    with gzip.open(folder / "logs.tar.gz", "wb", compresslevel=1) as out:
        for number in range(count):
            record = b"%d k%06d=" % (size, number)
            text = record + b"v" * (size - len(record) - 1) + b"\n" if kind in b"xg" else body
            out.write(build.tar_header("a", size, kind) + text + b"\0" * (-size % 512))
        out.write(build.tar_header("a.log", len(build.OOM)) + build.OOM + b"\0" * (-len(build.OOM) % 512) + bytes(1024))
    done = analyze(folder).check((1,))
    assert (done.killer, done.gap("logs.tar.gz")) == (build.KILLER, True)


@pytest.mark.parametrize(
    "payload", [b"1" * (1 << 20), b"2 " * (1 << 18) + b"=", b"0 a=\n" * 9, b"99999 path=x\n"], ids=["digits", "records", "empty", "longer"]
)
def test_pax_header_that_is_slow_to_read(tmp_path: Path, analyze: Doctor, payload: bytes) -> None:
    """A PAX header without the form that the standard gives it is damage; the log beside it is read."""
    good = build.good_log(tmp_path / "run")
    archive = good.with_name("logs.tar.gz")
    with gzip.open(archive, "wb") as out:
        out.write(build.tar_header("x", len(payload), tarfile.XHDTYPE) + payload + bytes(-len(payload) % 512))
        out.write(build.tar_header("late.log", len(build.KILL)) + build.KILL + bytes(-len(build.KILL) % 512) + bytes(1024))
    done = analyze(good.parent).check()
    assert (done.killer, done.gap(archive)) == (KILLER, True)


def test_pax_header_of_tar(tmp_path: Path, analyze: Doctor) -> None:
    """One with long names, dates, and a name in Chinese is read as ever."""
    run = tmp_path / "run"
    run.mkdir()
    name = "训练/" + "n" * 150 + ".log"
    with tarfile.open(run / "logs.tar", "w", format=tarfile.PAX_FORMAT) as out:
        info = tarfile.TarInfo(name)
        info.size, info.mtime, info.pax_headers = len(build.KILL), 1732531200.123456, {"comment": "x" * 3000}
        out.addfile(info, io.BytesIO(build.KILL))
    done = analyze(run).check()
    assert (done.killer, done.gap(run / "logs.tar")) == (KILLER, False)


def test_gzip_of_many_short_members(tmp_path: Path, analyze: Doctor) -> None:
    """A line without an end, and 180,000 members of a byte behind it: each was a search of the whole line."""
    good = build.good_log(tmp_path / "run")
    good.with_name("worker.log.gz").write_bytes(gzip.compress(b"a" * 3_900_000) + gzip.compress(b"b") * 180_000)
    assert analyze(good.parent).check().killer == KILLER


TEXT = "".join(f"line {number} of the log, {number * 7919 % 1009}\n" for number in range(600)).encode()


def _tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for number in range(4):
            info = tarfile.TarInfo(f"{number}.log")
            info.size = len(TEXT)
            archive.addfile(info, io.BytesIO(TEXT))
    return out.getvalue()


def _zip() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(4):
            archive.writestr(f"{number}.log", TEXT)
    return out.getvalue()


def _zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(data)


PACKED: dict[str, Callable[[], bytes]] = {
    "x.log.gz": lambda: gzip.compress(TEXT) * 2,
    "x.log.bz2": lambda: bz2.compress(TEXT) * 2,
    "x.log.xz": lambda: lzma.compress(TEXT) * 2,
    "x.log.zst": lambda: _zstd(TEXT) * 2,
    "x.zip": _zip,
    "x.tar": _tar,
    "x.tar.gz": lambda: gzip.compress(_tar()),
    "x.tar.bz2": lambda: bz2.compress(_tar()),
    "x.tar.xz": lambda: lzma.compress(_tar()),
    "x.tar.zst": lambda: _zstd(_tar()),
}
DAMAGE: dict[str, Callable[[bytearray, int], bytearray]] = {
    "cut": lambda data, place: data[:place],
    "flipped": lambda data, place: data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :],
    "zeroed": lambda data, place: data[:place] + bytes(len(data[place : place + 4096])) + data[place + 4096 :],
}


@pytest.mark.parametrize("how", DAMAGE)
@pytest.mark.parametrize("name", PACKED)
def test_damage_is_a_gap(tmp_path: Path, name: str, how: str) -> None:
    """What differs from what was packed has a gap, whichever byte is damaged; text within a plain tar has no checksum."""
    if name == "x.tar" and how != "cut":
        pytest.skip("a tar has checksums of its headers only")
    path = tmp_path / name
    data = PACKED[name]()
    path.write_bytes(data)
    whole, gaps = read_folder([path])
    assert gaps == [] and sum(map(len, whole.values())) >= 2 * len(TEXT)
    places = random.Random(f"{name} {how}")
    for place in (places.randrange(1, len(data)) for _ in range(40)):
        path.write_bytes(DAMAGE[how](bytearray(data), place))
        found, gaps = read_folder([path])
        assert found == whole or gaps, place
