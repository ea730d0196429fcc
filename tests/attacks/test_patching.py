"""`doctor patch` on files and journals that another user has prepared."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.errors import SourceError, UsageError
from rlhfdoctor.patch.apply import revert_files, write_change
from rlhfdoctor.patch.journal import keep
from rlhfdoctor.patch.merge import Change
from tests.attacks import build
from tests.attacks.conftest import Doctor
from tests.attacks.run import PEAK_MIB

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: files of another user")
OTHER_UID = 65534
SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "openrlhf-save-kill" / "run"
CONSENT = ("--consent", "host-container-limit")
VICTIM = b"root:x:0:0\n"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An incident whose launch.sh can be patched."""
    return Path(shutil.copytree(SAMPLE, tmp_path / "run"))


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A file of root's that is none of the run's."""
    path = tmp_path / "victim.conf"
    path.write_bytes(VICTIM)
    path.chmod(0o600)
    return path


def unharmed(victim: Path) -> bool:
    """Whether the file is as it was."""
    return victim.read_bytes() == VICTIM and victim.stat().st_mode & 0o777 == 0o600 and not victim.is_symlink()


def entry(file: str, **more: Any) -> str:
    """A journal that claims to have changed a file into what the victim is."""
    fields = {
        "file": file,
        "original": base64.b64encode(b"attacker::0:0\n").decode(),
        "written": hashlib.sha256(VICTIM).hexdigest(),
    }
    return json.dumps(fields | more)


def absolute(run: Path, victim: Path) -> str:
    return entry(str(victim))


def upwards(run: Path, victim: Path) -> str:
    return entry("../victim.conf")


def link(run: Path, victim: Path) -> str:
    (run / "launch.conf").symlink_to(victim)
    return entry("launch.conf")


@pytest.mark.parametrize("plant", [absolute, upwards, link], ids=lambda plant: plant.__name__)
def test_planted_journal(run: Path, victim: Path, attack: Doctor, plant: Callable[[Path, Path], str]) -> None:
    """Row 1: a journal takes back a bare file name beside it, nothing that a path or a link leads to."""
    (run / ".rlhfdoctor").mkdir()
    (run / ".rlhfdoctor" / "x.json").write_text(plant(run, victim))
    done = attack("patch", run, "--revert").check()
    assert unharmed(victim), done.stdout


def test_journal_that_is_a_link(run: Path, victim: Path, tmp_path: Path, attack: Doctor) -> None:
    """Row 1: a journal, or its folder, that is a link is not believed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "victim.conf.json").write_text(entry("victim.conf"))
    (tmp_path / ".rlhfdoctor").symlink_to(elsewhere)
    done = attack("patch", victim, "--revert").check()
    assert unharmed(victim), done.stdout


@AS_ROOT
def test_journal_of_another_user(run: Path, victim: Path, attack: Doctor) -> None:
    """Row 1: a journal that another user owns does not change a file of ours."""
    own = run / "victim.conf"
    own.write_bytes(VICTIM)
    own.chmod(0o600)
    folder = run / ".rlhfdoctor"
    folder.mkdir()
    journal = folder / "victim.conf.json"
    journal.write_text(entry("victim.conf"))
    for path in (folder, journal):
        os.chown(path, OTHER_UID, OTHER_UID)
    done = attack("patch", run, "--revert").check()
    assert unharmed(own), done.stdout


@pytest.mark.parametrize("name", [".launch.sh.$$", ".rlhfdoctor/.launch.sh.json.$$"], ids=["file", "journal"])
def test_planted_link_of_a_temporary_name(run: Path, victim: Path, attack: Doctor, name: str) -> None:
    """Row 3: a link with the name of the temporary file is not followed, and the patch is written all the same."""
    before = f"mkdir -p {run}/.rlhfdoctor; ln -s {victim} {run}/{name}"
    attack("patch", run, "--write", *CONSENT, before=before).check((0,))
    assert unharmed(victim)
    assert "--memory=625g" in (run / "launch.sh").read_text()
    assert not (run / "launch.sh").is_symlink()


def cut(data: dict[str, Any]) -> str:
    return json.dumps(data | {"original": data["original"][:-8]})


def no_base64(data: dict[str, Any]) -> str:
    return json.dumps(data | {"original": "!!"})


def no_text(data: dict[str, Any]) -> str:
    return json.dumps(data | {"original": 5})


def no_original(data: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in data.items() if key != "original"})


def half(data: dict[str, Any]) -> str:
    return json.dumps(data)[:100]


def a_list(data: dict[str, Any]) -> str:
    return json.dumps([data])


def deep(data: dict[str, Any]) -> str:
    return build.nested("1", 100_000)


@pytest.mark.parametrize(
    "damage", [no_base64, cut, no_text, no_original, half, a_list, deep], ids=lambda damage: damage.__name__
)
def test_damaged_journal(run: Path, attack: Doctor, damage: Callable[[dict[str, Any]], str]) -> None:
    """Row 24: a damaged journal takes nothing back: the file keeps its bytes, the journal stays, and the error says so."""
    attack("patch", run, "--write", *CONSENT).check((0,))
    journal = run / ".rlhfdoctor" / "launch.sh.json"
    written = (run / "launch.sh").read_bytes()
    damaged = damage(json.loads(journal.read_text()))
    journal.write_text(damaged)
    done = attack("patch", run, "--revert").check((2,))
    assert (run / "launch.sh").read_bytes() == written
    assert journal.read_text() == damaged
    assert "launch.sh" in done.stderr


@AS_ROOT
def test_foreign_file(run: Path, attack: Doctor) -> None:
    """Row 25: owner, mode, hard links and attributes of a foreign file are kept by a patch and its revert, or it says."""
    script, twin = run / "launch.sh", run.with_name("twin.sh")
    twin.hardlink_to(script)
    os.chown(script, OTHER_UID, OTHER_UID)
    script.chmod(0o640)
    try:
        os.setxattr(script, "user.note", b"mine")
        attributes = True
    except OSError:
        attributes = False
    original, linked, noted = script.read_bytes(), True, attributes
    for words in (("--write", *CONSENT), ("--revert",)):
        done = attack("patch", run, *words).check()
        said = (done.stdout + done.stderr).lower()
        info = script.stat()
        assert (info.st_uid, info.st_gid, info.st_mode & 0o777) == (OTHER_UID, OTHER_UID, 0o640)
        assert script.samefile(twin) or not linked or "link" in said
        linked = script.samefile(twin)
        assert not noted or "user.note" in os.listxattr(script) or "attribute" in said
        noted = noted and "user.note" in os.listxattr(script)
    assert script.read_bytes() == original


def test_journal_of_a_private_file(run: Path, attack: Doctor) -> None:
    """Row 26: the journal of a file that only its owner reads is such a file itself, when written and written again."""
    (run / "launch.sh").chmod(0o600)
    attack("patch", run, "--write", *CONSENT).check((0,))
    journal = run / ".rlhfdoctor" / "launch.sh.json"
    assert journal.stat().st_mode & 0o077 == 0
    assert (run / "launch.sh").stat().st_mode & 0o777 == 0o600


def test_deep_folder_is_searched_for_journals(run: Path, attack: Doctor) -> None:
    """Row 22: a search for journals below 5,000 nested folders takes back what it finds."""
    from tests.attacks.test_reading import nest

    original = (run / "launch.sh").read_bytes()
    attack("patch", run, "--write", *CONSENT).check((0,))
    nest(run, 5000)
    attack("patch", run, "--revert").check((0,))
    assert (run / "launch.sh").read_bytes() == original


@pytest.mark.parametrize(
    "edits",
    [[[0, 9, "x" * (40 << 20)]], [[0, 1, "y"]] * 100_000, [[-5, 10**12, "z"]], [["a", 1, "b"]], [[0, 0, "\u4e2d"]]],
    ids=["large", "many", "places", "types", "letters"],
)
def test_planted_edits(run: Path, attack: Doctor, edits: list[Any]) -> None:
    """A journal whose edits do not make the file is a gap: the verdict rests on the file as it is."""
    attack("patch", run, "--write", *CONSENT).check((0,))
    journal = run / ".rlhfdoctor" / "launch.sh.json"
    journal.write_text(json.dumps(json.loads(journal.read_text()) | {"edits": edits}))
    done = attack("analyze", run).check((1,))
    assert "launch.sh" in done.stdout


def swapping(monkeypatch: pytest.MonkeyPatch, folder: Path, victim: Path, when: Callable[[str], bool]) -> None:
    """From the moment that a file of such a name is opened, a link to the victim's folder stands in the folder's place."""
    opened, waiting = os.open, [folder]

    def open_(path: Any, *rest: Any, **more: Any) -> int:
        handle = opened(path, *rest, **more)
        if waiting and when(os.fspath(path)):
            waiting.pop()
            folder.rename(folder.with_name("moved"))
            folder.symlink_to(victim)
        return handle

    monkeypatch.setattr(os, "open", open_)


@pytest.mark.parametrize("when", ["analysed", "journalled"])
def test_folder_that_becomes_a_link(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    """A third attack: who owns the folder above puts a link in its place, before or after the file is read again."""
    victim = tmp_path / "etc" / "launch.sh"
    victim.parent.mkdir()
    victim.write_bytes(VICTIM)
    script = run / "launch.sh"
    analysed = script.read_text()
    if when == "analysed":
        run.rename(run.with_name("moved"))
        run.symlink_to(victim.parent)
    else:
        swapping(monkeypatch, run, victim.parent, lambda name: name.startswith(".launch.sh.json."))
    change = Change(file=str(script), before=analysed, after="attacker::0:0\n", base=analysed, edits=(), count=1)
    with pytest.raises((SourceError, UsageError), match=r"Nothing was changed|changed since it was analysed"):
        write_change(change)
    assert run.is_symlink()
    assert (victim.read_bytes(), os.listdir(victim.parent)) == (VICTIM, ["launch.sh"])


def test_journals_folder_that_becomes_a_link(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sixth attack: while the first file is restored, the second one's journals become a link to a folder of root's."""
    target = tmp_path / "etc"
    target.mkdir()
    for name in ("launch.sh.json", ".gitignore"):
        (target / name).write_bytes(VICTIM)
    for folder in ("a", "b"):
        (run / folder).mkdir()
        script = run / folder / "launch.sh"
        script.write_bytes(b"new")
        keep(script.resolve(), b"old", b"new")
    swapping(monkeypatch, run / "b" / ".rlhfdoctor", target, lambda name: name.startswith(".launch.sh."))
    with pytest.raises(SourceError):
        revert_files([run])
    assert {path.name: path.read_bytes() for path in target.iterdir()} == {"launch.sh.json": VICTIM, ".gitignore": VICTIM}
    assert (run / "b" / ".rlhfdoctor").is_symlink() and (run / "a" / "launch.sh").read_bytes() == b"old"


def test_a_journal_of_millions_of_edits_costs_nothing(run: Path, attack: Doctor) -> None:
    """It was 1 GiB and 16 s: the edits became objects before they were counted."""
    script = (run / "launch.sh").read_bytes()
    state = hashlib.sha256(script).hexdigest()
    head = json.dumps({"schema": "rlhfdoctor.patched/1", "file": "launch.sh", "before": state, "written": state})
    (run / ".rlhfdoctor").mkdir()
    with (run / ".rlhfdoctor" / "launch.sh.json").open("w") as journal:
        journal.write(f'{head[:-1]}, "original": "{base64.b64encode(script).decode()}", "edits": [')
        journal.write('[0,0,""],' * 6_000_000 + '[0,0,""]]}')
    done = attack("analyze", run)
    assert done.code == 1 and done.peak_mib < PEAK_MIB
    assert "more changes than the doctor makes" in done.stdout


def test_many_large_journals(tmp_path: Path, attack: Doctor) -> None:
    """A folder of journals of 24 MiB each, which a small archive holds: one is in memory at a time."""
    original = b"\0" * (24 << 20)
    folder = tmp_path / "run"
    (folder / ".rlhfdoctor").mkdir(parents=True)
    for number in range(12):
        (folder / f"{number}.sh").write_bytes(b"x")
        hashes = {"before": hashlib.sha256(original).hexdigest(), "written": hashlib.sha256(b"x").hexdigest()}
        text = {"schema": "rlhfdoctor.patched/1", "file": f"{number}.sh", "original": base64.b64encode(original).decode()}
        (folder / ".rlhfdoctor" / f"{number}.sh.json").write_text(json.dumps(text | hashes))
    done = attack("patch", folder, "--revert").check((0,))
    assert done.peak_mib <= PEAK_MIB
    assert (folder / "11.sh").stat().st_size == len(original)
