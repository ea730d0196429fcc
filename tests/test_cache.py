"""What is kept between starts: whose files are believed, and that a document is the same with it and without."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from rlhfdoctor import cache, documents
from rlhfdoctor.conditions.files import read_yaml
from rlhfdoctor.files import own

ROOT = Path(__file__).resolve().parents[1]
TEXTS = sorted([*ROOT.glob("rules/**/*.yaml"), *ROOT.glob("rlhfdoctor/**/*.yaml")])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of a user who has none yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rlhfdoctor"


@pytest.fixture
def fresh(folder: Path) -> Iterator[Path]:
    """The same for documents, which are read once a process and kept at its end."""
    documents._kept.cache_clear()
    yield folder
    documents._kept().is_new = False
    documents._kept.cache_clear()


def test_what_is_saved_is_loaded(folder: Path) -> None:
    """Whole, and readable by its user only."""
    cache.save("kind-1.bin", b"data")
    modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "kind-1.bin")]
    assert (cache.load("kind-1.bin"), cache.load("kind-2.bin"), modes) == (b"data", None, [0o700, 0o600])
    assert [path.name for path in folder.iterdir()] == ["kind-1.bin"]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_not_believed(folder: Path, mode: int) -> None:
    """It is as if it were not there."""
    cache.save("kind-1.bin", b"data")
    (folder / "kind-1.bin").chmod(mode)
    assert cache.load("kind-1.bin") is None


def test_a_folder_that_others_may_write_is_not_believed(folder: Path) -> None:
    """Whoever may write there may put a file in the place of ours; nothing is saved there, either."""
    cache.save("kind-1.bin", b"data")
    folder.chmod(0o777)
    cache.save("kind-2.bin", b"data")
    assert (cache.load("kind-1.bin"), [path.name for path in folder.iterdir()]) == (None, ["kind-1.bin"])


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a file to another user")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_another_users_is_not_believed(folder: Path, what: str) -> None:
    """As root under `sudo` with the home of a user: that user's files do not decide what root does."""
    cache.save("kind-1.bin", b"data")
    os.chown(folder if what == "folder" else folder / "kind-1.bin", 12345, 12345)
    assert cache.load("kind-1.bin") is None


def test_links_and_pipes_are_not_followed(folder: Path, tmp_path: Path) -> None:
    """No link leads out of the folder, and no pipe holds the command up."""
    cache.save("kind-1.bin", b"data")
    os.symlink(folder / "kind-1.bin", folder / "kind-2.bin")
    os.mkfifo(folder / "kind-3.bin", 0o600)
    assert (cache.load("kind-2.bin"), cache.load("kind-3.bin")) == (None, None)


def test_old_files_of_a_kind_go(folder: Path) -> None:
    """Of an earlier release, once they have not been renewed for months; those of other kinds stay."""
    for name in ("kind-1.bin", "other-1.bin"):
        cache.save(name, b"data")
        os.utime(folder / name, (time.time() - 100 * 86400,) * 2)
    cache.save("kind-2.bin", b"data")
    assert sorted(path.name for path in folder.iterdir()) == ["kind-2.bin", "other-1.bin"]


def test_no_folder_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that is a file, or none at all."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    cache.save("kind-1.bin", b"data")
    assert cache.load("kind-1.bin") is None


def test_a_relative_folder_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be another one in every folder; the specification has it ignored."""
    for name, value in (("XDG_CACHE_HOME", "here"), ("HOME", str(tmp_path / "home"))):
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    cache.save("kind-1.bin", b"data")
    assert [path.name for path in tmp_path.rglob("kind-*")] == ["kind-1.bin"]
    assert not (tmp_path / "here").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to another user")
@pytest.mark.parametrize("linked", [False, True])
def test_a_home_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, linked: bool) -> None:
    """`sudo` may keep HOME: who owns it can put a link to any folder in the place of its cache, at any time."""
    home, victim = tmp_path / "home", tmp_path / "victim"
    (home / ".cache").mkdir(parents=True)
    victim.mkdir()
    if linked:
        (home / ".cache" / "rlhfdoctor").symlink_to(victim)
    old = victim / "kind-precious.txt"
    old.write_text("")
    os.utime(old, (0, 0))
    os.chown(home, 12345, 12345)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("pwd.getpwuid", lambda uid: SimpleNamespace(pw_dir=str(tmp_path / "root")))
    cache.save("kind-1.bin", b"data")
    assert cache.load("kind-1.bin") == b"data"
    assert [path.name for path in tmp_path.rglob("kind-*")] == ["kind-precious.txt", "kind-1.bin"]
    assert (tmp_path / "root" / ".cache" / "rlhfdoctor" / "kind-1.bin").exists()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_are_what_yaml_says(fresh: Path, path: Path) -> None:
    """Each file of the package is the same from YAML, from the first reading, and from what was kept of it."""
    text = path.read_text()
    expected = yaml.safe_load(text)
    assert [documents.parse(text), documents.parse(text), documents.recall(text)] == [expected] * 3


def test_each_reading_has_its_own_values(fresh: Path) -> None:
    """Who changes what he was given changes nothing for others."""
    documents.parse("a: [1]")["a"].append(2)
    documents.parse("a: [1]")["a"].append(3)
    assert documents.parse("a: [1]") == {"a": [1]}


@pytest.mark.parametrize("text", ["a: 2024-01-02", "1: a", "a: .nan", "a: !!binary aGk=", "a: !!set {b}"])
def test_what_json_cannot_hold_is_parsed_each_time(fresh: Path, text: str) -> None:
    """Dates, numbers as keys, NaN, bytes, sets."""
    values = [documents.parse(text) for _ in range(2)]
    assert documents.recall(text) is None
    assert [repr(value) for value in values] == [repr(yaml.safe_load(text))] * 2


@pytest.mark.parametrize("data", [b"", b"{", b"[1]", b'{"a": 1}', b"\xff\xfe", b"null"])
def test_a_damaged_file_is_made_anew(fresh: Path, data: bytes) -> None:
    """It says nothing, and the next start finds a good one."""
    cache.save(documents._FILE, data)
    assert documents.parse("a: 1") == {"a": 1}
    documents._kept().save()
    documents._kept.cache_clear()
    assert documents.recall("a: 1") == {"a": 1}


def test_a_kept_text_that_is_no_json_is_parsed(fresh: Path) -> None:
    """One document of it may be damaged, too."""
    documents.parse("a: 1")
    documents._kept().texts[documents._key("a: 1")] = "{"
    assert documents.parse("a: 1") == {"a": 1}


def test_faults_have_their_lines_with_and_without(fresh: Path, tmp_path: Path) -> None:
    """Lines are looked up once there is a fault."""
    path = tmp_path / "rule.yaml"
    path.write_text("a: 1\n\nb:\n  - c: 2\n")
    results = []
    for _ in range(2):
        _, faults = read_yaml(path)
        faults.add(("b", 0, "c"), "is wrong")
        results.append(faults.found)
    assert results == [[f"{path}:4: is wrong"]] * 2


def test_the_second_start_parses_nothing(folder: Path) -> None:
    """The whole catalogue comes from what the first one kept."""
    program = """
import yaml, sys
seen = []
real = yaml.load
yaml.load = lambda *a, **k: seen.append(1) or real(*a, **k)
from rlhfdoctor import documents
made = []
plain = documents.LOADER
documents.LOADER = lambda *a: made.append(1) or plain(*a)
from rlhfdoctor.engine.catalogue import load_rules
print(len(load_rules()), len(seen) + len(made))
"""
    results = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT).stdout.split() for _ in range(2)]
    assert results[0][0] == results[1][0]
    assert int(results[0][1]) > 40 and int(results[1][1]) == 0


def test_documents_that_are_kept_have_bounds(fresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every command reads what is kept, so a document of a stranger's catalogue may not make all of them slow."""
    monkeypatch.setattr(documents, "_MOST_LETTERS", 200)
    for text in ("a: 1", f"b: {'x' * 1000}", "c: 1", "d: 1"):
        documents.parse(text)
    documents._kept().save()
    documents._kept.cache_clear()
    assert [documents.recall(text) for text in ("a: 1", f"b: {'x' * 1000}", "c: 1", "d: 1")] == [{"a": 1}, None, {"c": 1}, {"d": 1}]
    assert list(documents._kept().texts.values()) == ['{"a": 1}', '{"c": 1}', '{"d": 1}']


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder to another user")
@pytest.mark.parametrize(("uid_map", "is_used"), [(b"0 0 4294967295", False), (b"1000 1000 1", True)])
def test_the_hosts_root_in_a_user_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid_map: bytes, is_used: bool
) -> None:
    """There `/` and `/home` belong to nobody, who can change nothing."""
    monkeypatch.setattr(own, "read_bytes", lambda path, most: uid_map if path.endswith("uid_map") else b"65534\n")
    own._owners.cache_clear()
    home = tmp_path / "home"
    home.mkdir(mode=0o755)
    os.chown(home, 65534, 65534)
    (home / "me").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / "me"))
    cache.save("kind-1.bin", b"data")
    assert cache.load("kind-1.bin") == (b"data" if is_used else None)
    own._owners.cache_clear()


@pytest.mark.parametrize("damage", [b"[" * 200_000, b'{"x": "[[[["}', b"\xff", b""], ids=["deep", "other", "bytes", "empty"])
def test_documents_that_a_disk_damaged(fresh: Path, damage: bytes) -> None:
    """They are parsed anew, as if nothing had been kept."""
    cache.save(documents._FILE, cache.key(b"x").encode() + b"\n" + damage)
    assert documents.parse("a: 1") == {"a": 1}
