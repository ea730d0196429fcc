"""Addresses of a storage: what is read there, and what is reported where it cannot be. Real fsspec: files, memory, HTTP."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlhfdoctor.core.session import Session
from rlhfdoctor.errors import SourceError
from rlhfdoctor.logs.open import find_sources
from rlhfdoctor.logs.remote import find_remote, is_remote
from rlhfdoctor.types import Gap
from tests.logs.test_open import TEXT, tar_of, zip_of, zst

fsspec = pytest.importorskip("fsspec", reason="needs fsspec (make test installs it)")
SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder as a run leaves it."""
    files = {
        "a.log": TEXT,
        "b.log.zst": zst(TEXT),
        "deep/c.tar.gz": tar_of({"in/c.log": TEXT}, "w:gz"),
        "deep/d.zip": zip_of({"d.log": TEXT}),
        "empty.log": b"",
        "model.safetensors": b"x",
        ".hidden": TEXT,
        "__pycache__/x.log": TEXT,
    }
    for name, data in files.items():
        path = tmp_path / "run" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "run"


def read(url: str, gaps: list[Gap]) -> dict[str, bytes]:
    """Names below an address, and their text."""
    return {source.name.removeprefix(url): b"".join(source.stream()) for source in find_sources([url], gaps)}


@pytest.mark.parametrize("name", ["s3://bucket/run", "gs://b", "file:///mnt", "memory://x", "HDFS://h/x"])
def test_an_address_has_a_scheme(name: str) -> None:
    """What has one is no path of this machine."""
    assert is_remote(name)


@pytest.mark.parametrize("name", ["-", "run", "/tmp/a:b", "C:/x", "a.tar.gz!b", "//x", "x/s3://b"])
def test_a_path_has_none(name: str) -> None:
    """A path stays a path."""
    assert not is_remote(name)


def test_a_folder_is_read_like_one_of_this_machine(run: Path) -> None:
    """Compressed files and archives included; what is skipped here is skipped there."""
    gaps: list[Gap] = []
    found = read(f"file://{run}", gaps)
    assert found == {"/a.log": TEXT, "/b.log.zst": TEXT, "/deep/c.tar.gz!in/c.log": TEXT, "/deep/d.zip!d.log": TEXT}
    assert not gaps


@pytest.mark.parametrize("name", ["a.log", "b.log.zst", "deep/c.tar.gz", "deep/d.zip"])
def test_one_file(run: Path, name: str) -> None:
    """The address of a file is that file."""
    assert list(read(f"file://{run}/{name}", []).values()) == [TEXT]


def test_size_and_time_are_known(run: Path) -> None:
    """The time gives the year to stamps without one, the size the share of a worker."""
    file = next(find_remote(f"file://{run}/a.log"))
    assert (file.size_bytes, file.modified) == (len(TEXT), (run / "a.log").stat().st_mtime)


@pytest.mark.parametrize(
    ("url", "why"),
    [("file:///none/such", "no file there"), ("memory://none", "no file there"), ("nosuch://x", "Protocol not known"), ("http://127.0.0.1:1/x/", "127.0.0.1")],
)
def test_what_cannot_be_reached_is_said(url: str, why: str) -> None:
    """In one line, whatever the package of the storage raises."""
    with pytest.raises(SourceError, match=why) as raised:
        list(find_sources([url], []))
    assert "\n" not in str(raised.value)


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without fsspec the extra is named; without a storage's package fsspec names it."""
    monkeypatch.setitem(__import__("sys").modules, "s3fs", None)
    with pytest.raises(SourceError, match="s3fs"):
        list(find_sources(["s3://bucket/run"], []))
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(SourceError, match=r"rlhfdoctor\[remote\]"):
        list(find_sources(["s3://bucket/run"], []))


def test_an_error_in_the_middle_keeps_what_was_read(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A storage has errors of its own; one of them ends a file, and is a gap."""
    from fsspec.implementations.local import LocalFileSystem

    opened = LocalFileSystem.open

    class Throttled(Exception):
        pass

    class Cut:
        """Gives its first bytes only."""

        def __init__(self, inner: object) -> None:
            self.inner, self.left = inner, 3

        def __getattr__(self, name: str) -> object:
            return getattr(self.inner, name)

        def read(self, size: int = -1) -> bytes:
            self.left -= 1
            if self.left < 0:
                raise Throttled("SlowDown")
            return self.inner.read(min(size, 1000))  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(LocalFileSystem, "open", lambda *a, **k: Cut(opened(*a, **k)))
    gaps: list[Gap] = []
    found = read(f"file://{run}/a.log", gaps)
    assert found == {"": TEXT[:3000]}
    assert "Throttled: SlowDown; the first 3000 bytes were read" in str(gaps[0].why)


@pytest.fixture
def served() -> Iterator[str]:
    """The samples over HTTP, with listings as Python's own server makes them."""
    pytest.importorskip("aiohttp", reason="needs aiohttp (make test installs it)")

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(SAMPLES)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


def test_events_over_http_are_those_of_the_disk(served: str) -> None:
    """The same events, by whatever way the bytes came."""
    with Session([f"{served}/openrlhf-save-kill/run/"]) as there, Session([str(SAMPLES / "openrlhf-save-kill/run")]) as here:
        sessions = [SimpleNamespace(kinds=sorted(str(event.kind) for event in session.events), texts=len(session.texts)) for session in (there, here)]
    assert sessions[0] == sessions[1]
    assert sessions[0].kinds


def test_what_is_there_is_not_for_editing(run: Path) -> None:
    """A configuration on a storage is shown, and no patch of it can be written."""
    (run / "launch.sh").write_text("python -m openrlhf.cli.train_ppo_ray --zero_stage 2 --adam_offload\n")
    with Session([f"file://{run}"]) as session:
        settings = session.case.settings
        forms = {setting.form for setting in settings}
    assert forms == {"argv"}


def test_a_recorded_run_is_named_as_not_read() -> None:
    """Segments are read from a disk; the rest of the folder is read."""
    gaps: list[Gap] = []
    list(find_sources([f"file://{SAMPLES}/lab-save-kill/run"], gaps))
    assert "copy it to a disk of this machine" in str(gaps[-1].why)
