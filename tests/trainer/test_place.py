"""The lab's place: what killed processes leave behind does not stop the next run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed")

from torch.utils.file_baton import FileBaton

from trainer.lab import place
from trainer.lab.scenario import LabError


def test_stale_locks_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch waits for a `lock` file for ever; the operators themselves stay."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    operator = place.extensions() / "cpu_adam"
    operator.mkdir(parents=True)
    for name in ("lock", "cpu_adam.so"):
        (operator / name).write_text("")
    place.unlock()
    assert [path.name for path in operator.iterdir()] == ["cpu_adam.so"]


def test_a_lock_that_is_held_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a training that loads an operator while another one starts."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    lock = place.extensions() / "cpu_adam" / "lock"
    lock.parent.mkdir(parents=True)
    baton = FileBaton(str(lock))
    assert baton.try_acquire()
    place.unlock()
    assert lock.exists()
    baton.release()


def test_operators_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is started for an installation whose operators are there; for another the compiler is, and its failure is a message."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(place.sys, "executable", "/bin/false")
    for name in ("cpu_adam", "deepspeed_shm_comm"):
        (place.extensions() / name).mkdir(parents=True)
        (place.extensions() / name / f"{name}.so").write_text("")
    note = place.extensions() / "compiled.txt"
    note.write_text(place.installation())
    place.warm()
    for other in ("torch==1.0 deepspeed==0.1", place.installation().replace(" of ", " of 1")):
        note.write_text(other)
        with pytest.raises(LabError, match="do not compile"):
            place.warm()
        assert note.read_text() == other


def test_nothing_compiled_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without the folder has no locks."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    place.unlock()
    assert list(tmp_path.iterdir()) == []


def test_programs_are_found() -> None:
    """Python's own, torch's and Ray's."""
    names = {path.name for path in place.programs()}
    assert {"libtorch_cpu.so", "_raylet.so", "raylet", "gcs_server", Path(sys.executable).name} <= names
    assert [name for name in names if name.startswith("_json.cpython")] != []


def test_programs_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shared objects and Ray's programs; a link to nowhere stops nothing."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(place.sysconfig, "get_path", lambda name: str(tmp_path / name))
    monkeypatch.setattr(place.sysconfig, "get_config_var", lambda name: None)
    monkeypatch.setattr(place.sys, "executable", str(tmp_path / "python"))
    wanted = [
        tmp_path / "platlib" / "torch" / "lib" / "libtorch.so",
        tmp_path / "platlib" / "numpy.libs" / "libgomp.so.1",
        tmp_path / "platlib" / "ray" / "core" / "src" / "ray" / "raylet" / "raylet",
        tmp_path / "stdlib" / "lib-dynload" / "_json.so",
    ]
    for path in [*wanted, tmp_path / "platlib" / "torch" / "model.py"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(3 << 20))
    (tmp_path / "platlib" / "gone.so").symlink_to(tmp_path / "nowhere")
    assert place.cache_programs() == len(wanted) * (3 << 20)
