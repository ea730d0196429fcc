"""The project file: where it is looked for, whom it is believed, what it gives to each command, `doctor config`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import pytest
from click.testing import Result

from rlhfdoctor.cli import trust
from rlhfdoctor.cli.project import find_project
from rlhfdoctor.engine.draft import write_skeleton
from rlhfdoctor.errors import UsageError

Doctor = Callable[..., Result]
SAMPLE = Path(__file__).parent.parent / "samples" / "openrlhf-save-kill" / "run"
EVERYTHING = """\
framework = "openrlhf==0.5.3"
language = "zh"
rules = ["rules"]
hide = ["acme", "orion"]

[machine]
nodes = 2
gpus_per_node = 0
gpu = "h100-80g"
host_memory = "1T"
container_memory = "900G"
shm = "64G"
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of ours, which is the current one."""
    mask = os.umask(0o022)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    os.umask(mask)


def configured(doctor: Doctor, *words: str) -> dict[str, Any]:
    """What `doctor config` says: key -> (value, origin)."""
    values = json.loads(doctor("config", "--format", "json", *words).stdout)["values"]
    return {key: (row["value"], row["from"]) for key, row in values.items()}


def test_every_key_and_its_line(doctor: Doctor, home: Path) -> None:
    """Folders of rules are taken from the file's own folder."""
    write_skeleton(home / "rules" / "gpu-mine")
    (home / "rlhfdoctor.toml").write_text(EVERYTHING)
    found = configured(doctor)
    assert {key: row for key, row in found.items() if key != "catalogue"} == {
        "framework": ("openrlhf==0.5.3", "rlhfdoctor.toml:1"),
        "language": ("zh", "rlhfdoctor.toml:2"),
        "rules": ([str(home / "rules")], "rlhfdoctor.toml:3"),
        "hide": (["acme", "orion"], "rlhfdoctor.toml:4"),
        "machine.nodes": (2, "rlhfdoctor.toml:7"),
        "machine.gpus_per_node": (0, "rlhfdoctor.toml:8"),
        "machine.gpu": ("h100-80g", "rlhfdoctor.toml:9"),
        "machine.host_memory": ("1T", "rlhfdoctor.toml:10"),
        "machine.container_memory": ("900G", "rlhfdoctor.toml:11"),
        "machine.shm": ("64G", "rlhfdoctor.toml:12"),
    }


def test_without_a_file(doctor: Doctor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set but the language, by the environment."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert configured(doctor)["language"] == ("en", "default")
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert (configured(doctor)["language"], configured(doctor)["hide"]) == (("zh", "$LANG"), (None, None))
    assert "rlhfdoctor.toml" in doctor("config").stdout


def test_the_nearest_file_counts(doctor: Doctor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder rlhfdoctor.toml before pyproject.toml; a pyproject.toml without our table is passed over."""
    (home / "pyproject.toml").write_text('[project]\nname = "x"\n\n[tool.rlhfdoctor]\nframework = "trl"\n[tool.rlhfdoctor.machine]\nnodes = 3\n')
    inner = home / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "pyproject.toml").write_text('[project]\nname = "rlhfdoctor"\n')
    monkeypatch.chdir(inner)
    found = configured(doctor)
    assert (found["framework"], found["machine.nodes"]) == (("trl", "../../pyproject.toml:5"), (3, "../../pyproject.toml:7"))
    (home / "rlhfdoctor.toml").write_text('machine.nodes = 4\n')
    found = configured(doctor)
    assert (found["framework"], found["machine.nodes"]) == ((None, None), (4, "../../rlhfdoctor.toml:1"))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('framwork = "trl"', ":1: unknown key 'framwork' in rlhfdoctor. Did you mean 'framework'?"),
        ('\n[machine]\nhost_memry = "1T"', ":3: unknown key 'host_memry' in machine. Did you mean 'host_memory'?"),
        ("[machine]\nnodes = 0", ":2: 'nodes': expected int >= 1"),
        ('[machine]\nnodes = "two"', ":2: 'nodes': expected int | null, got str"),
        ("[machine]\nnodes = true", ":2: 'nodes': expected int | null, got bool"),
        ('[machine]\nshm = "64"', ":2: '64': write a size such as 512G, 1.5T or 80GiB"),
        ("machine = 3", ":1: 'machine' takes a mapping with nodes, gpus_per_node,"),
        ('language = "fr"', ":1: no language 'fr'. Known: en, zh"),
        ('framework = "==1"', ":1: '==1': write NAME or NAME==VERSION"),
        ('rules = "rules"', ":1: 'rules': expected array | null, got str"),
        ('rules = ["rules"]', "rules: holds no rule (a folder with rule.yaml)"),
        ("hide = [1]", ":1: '0': expected str, got int"),
        ("framework = ", "rlhfdoctor.toml: Invalid value"),
        ("a = " + "[" * 3000, "rlhfdoctor.toml"),
    ],
)
def test_faults(doctor: Doctor, home: Path, text: str, fault: str) -> None:
    """Of every command, with file and line; exit code 2."""
    (home / "rlhfdoctor.toml").write_text(text)
    for command in (("config",), ("analyze", str(SAMPLE))):
        result = doctor(*command)
        assert (result.exit_code, fault in result.stderr, "internal error" in result.stderr) == (2, True, False), result.stderr
    assert doctor("analyze", "--help").exit_code == 0


def test_no_text(doctor: Doctor, home: Path) -> None:
    """A file of bytes is a fault, too; one of other tools is theirs to judge."""
    (home / "pyproject.toml").write_bytes(b"\xff[tool.rlhfdoctor]")
    assert doctor("config").exit_code == 0
    (home / "rlhfdoctor.toml").write_bytes(b"\xff")
    assert "is not UTF-8" in doctor("config").stderr


def test_options_go_before_the_file(doctor: Doctor, home: Path) -> None:
    """The framework and the language of a report."""
    (home / "rlhfdoctor.toml").write_text('framework = "verl"\nlanguage = "zh"\n')
    assert json.loads(doctor("analyze", SAMPLE, "--format", "json").stdout)["framework"]["name"] == "verl"
    given = doctor("analyze", SAMPLE, "--format", "json", "--framework", "openrlhf==0.1.10")
    assert json.loads(given.stdout)["framework"]["name"] == "openrlhf"
    assert "这是什么" not in doctor("rules", "explain", "host-leak", "--lang", "en").stdout
    assert "What it means" not in doctor("rules", "explain", "host-leak").stdout


def test_errors_are_in_its_language(doctor: Doctor, home: Path) -> None:
    """Also of commands without --lang."""
    (home / "rlhfdoctor.toml").write_text('language = "zh"\n')
    assert "No such" not in doctor("patch", "/nowhere/run").stderr
    assert "no such file" not in doctor("patch", "/nowhere/run").stderr


def test_the_machine_of_an_estimate(doctor: Doctor, home: Path) -> None:
    """Each of its keys is the default of the option of the same name."""
    (home / "launch.sh").write_text((SAMPLE / "launch.sh").read_text())
    (home / "rlhfdoctor.toml").write_text('[machine]\nhost_memory = "3T"\ngpu = "h100-80g"\n')
    limits = {row["name"]: row["bytes"] for row in json.loads(doctor("estimate", "launch.sh", "--format", "json").stdout)["limits"]}
    assert limits["node"] == 3 << 40
    given = json.loads(doctor("estimate", "launch.sh", "--format", "json", "--host-memory", "2T", "--gpu-memory", "40G").stdout)
    assert [row["bytes"] for row in given["limits"] if row["name"] in ("node", "GPU")] == [2 << 40, 40 << 30]


def test_rules_and_words_to_hide(doctor: Doctor, home: Path) -> None:
    """Words of the file are hidden whatever else is given."""
    write_skeleton(home / "mine" / "gpu-mine")
    (home / "rlhfdoctor.toml").write_text('rules = ["mine"]\nhide = ["acme"]\n')
    assert "gpu-mine" in doctor("rules", "list").stdout
    (home / "run").mkdir()
    (home / "run" / "driver.log").write_text("acme and orion\nRuntimeError: CUDA error: out of memory\n")
    result = doctor("bundle", home / "run", "--hide", "orion", "--out", home / "x.tar.gz")
    assert "2 words of --hide have tokens" in result.stdout


def test_never_in_the_folder_that_is_analysed(doctor: Doctor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unpacked may hold a project file of someone else's: that is said, and the next one above counts."""
    bundle = home / "bundle"
    (bundle / "logs").mkdir(parents=True)
    (bundle / "logs" / "driver.log").write_text("RuntimeError: CUDA error: out of memory\n")
    (bundle / "rlhfdoctor.toml").write_text('framework = "verl"\nrules = ["/nowhere"]\n')
    (home / "rlhfdoctor.toml").write_text('framework = "openrlhf"\n')
    monkeypatch.chdir(bundle / "logs")
    for path in ("..", str(bundle), "../logs/.."):
        result = doctor("analyze", path, "--format", "json")
        assert json.loads(result.stdout)["framework"]["name"] == "openrlhf"
        assert f"{bundle}/rlhfdoctor.toml is not used: it is in the folder that is read" in result.stderr
    for words in (("patch", ".."), ("report", "..", "--out", str(home / "x.md")), ("compare", "..", ".."), ("watch", "--attach", "..")):
        assert "/nowhere" not in doctor(*words).stderr
    monkeypatch.chdir(home)
    assert "not used" not in doctor("analyze", bundle).stderr


def test_a_current_folder_that_is_gone(doctor: Doctor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has no project file."""
    (home / "gone").mkdir()
    monkeypatch.chdir(home / "gone")
    (home / "gone").rmdir()
    assert doctor("rules", "list").exit_code == 0


def test_others_are_not_believed(home: Path) -> None:
    """A file, or a folder, that others can write; a link; a pipe is not waited for."""
    file = home / "rlhfdoctor.toml"
    file.write_text("nonsense = 1\n")
    for path, mode in ((file, 0o666), (file, 0o664), (home, 0o777), (home, 0o775)):
        path.chmod(mode)
        (why,) = find_project(home).notes
        assert f"others may write {path}" in str(why)
        path.chmod(mode & ~0o022)
    with pytest.raises(UsageError, match="unknown key"):
        find_project(home)
    file.rename(home / "x.toml")
    file.symlink_to("x.toml")
    assert "is no regular file" in str(find_project(home).notes)
    file.unlink()
    os.mkfifo(file)
    os.mkfifo(home / "pyproject.toml")
    assert "is no regular file" in str(find_project(home).notes)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to another user")
@pytest.mark.parametrize("name", [".", "rlhfdoctor.toml", "pyproject.toml"])
def test_another_users_file_is_not_believed(home: Path, name: str) -> None:
    """Nor one in another user's folder."""
    inner = home / "project"
    inner.mkdir()
    (inner / "rlhfdoctor.toml" if name == "." else inner / name).write_text("[tool.rlhfdoctor]\nnonsense = 1\n")
    os.chown(inner / name, 65534, 65534)
    assert "belongs to another user" in str(find_project(inner).notes)


def test_rules_above_what_is_read_take_a_word(
    doctor: Doctor, home: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may have come with it; a folder or a file of it makes no difference. Logs that lie elsewhere are no matter."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    write_skeleton(home / "rules" / "gpu-mine")
    (home / "rlhfdoctor.toml").write_text('rules = ["rules"]\nframework = "verl"\n')
    copytree(SAMPLE, home / "logs")
    draft = "rule gpu-mine"
    read: list[tuple[object, ...]] = [(home / "logs",), (home / "logs" / "driver.log",), (f"file://{home}/logs",)]
    for path in (*read, ("-",), (SAMPLE, "--config", home / "logs" / "launch.sh")):
        result = doctor("analyze", *path, "--format", "json")
        assert draft not in result.stdout
        assert "the rules of" in result.stderr
        assert f"from {home / 'rlhfdoctor.toml'}: framework" in result.stderr
    elsewhere = doctor("analyze", SAMPLE, "--format", "json")
    assert (draft in elsewhere.stdout, elsewhere.stderr) == (True, "")
    assert doctor("config", "--trust").exit_code == 0
    trusted = doctor("analyze", home / "logs", "--format", "json")
    assert (draft in trusted.stdout, "the rules of" in trusted.stderr) == (True, False)


def test_trust_takes_a_file_and_a_place(doctor: Doctor, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lack is said."""
    assert "no rlhfdoctor.toml" in doctor("config", "--trust").stderr
    (home / "rlhfdoctor.toml").write_text('framework = "verl"\n')
    (home / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "file"))
    result = doctor("config", "--trust")
    assert (result.exit_code, "cannot be kept as trusted" in result.stderr) == (2, True)


def test_trust_is_for_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where its name holds what other programs take for a line's end."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config").mkdir(0o700)
    trust.trust(tmp_path / "mine\x0bothers")
    assert trust.is_trusted(tmp_path / "mine\x0bothers") and not trust.is_trusted(tmp_path / "mine")
