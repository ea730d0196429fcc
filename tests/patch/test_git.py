"""`doctor patch RUN > fix.diff; git apply fix.diff`: the diff is what --write writes, byte for byte."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .test_command import doctor, tree

ROOT = Path(__file__).parents[2]
GIT = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn"]
PATCH = ["patch", "-p1", "--fuzz=0", "--batch", "--no-backup-if-mismatch", "--input"]
SHELL, DOCUMENT, SEVERAL = "samples/openrlhf-save-kill", "rules/host-pinned-offload/fires/deepspeed-json", "samples/lab-generate-desync"
CONSENT = {
    SHELL: ("host-container-limit",),
    DOCUMENT: ("host-pinned-offload",),
    SEVERAL: ("comm-zero3-generate-desync",),
}
TOOLS = [
    pytest.param(tool, id=tool[0], marks=pytest.mark.skipif(shutil.which(tool[0]) is None, reason=f"no {tool[0]} here"))
    for tool in (GIT, PATCH)
]


def as_it_is(data: bytes) -> bytes:
    return data


def crlf(data: bytes) -> bytes:
    return data.replace(b"\n", b"\r\n")


def no_newline(data: bytes) -> bytes:
    return data.rstrip(b"\n")


def latin_1(data: bytes) -> bytes:
    return data.replace(b"\n", b" # gr\xfc\xdfe\n", 1) if data.startswith(b"#") else data


def configuration(run: Path) -> list[Path]:
    """What can be patched."""
    return [path for path in run.rglob("*") if path.suffix in (".sh", ".yaml", ".json") and path.name != "run.json"]


def make(folder: Path, sample: str, change: Callable[[bytes], bytes] = as_it_is, name: str = "run") -> Path:
    """A copy of a sample whose configuration is written otherwise."""
    source = ROOT / sample
    run = Path(shutil.copytree(source / "run" if (source / "run").is_dir() else source, folder / name))
    (run / "expected.diff").unlink(missing_ok=True)
    for path in configuration(run):
        path.write_bytes(change(path.read_bytes()))
    return run


def words(sample: str) -> list[str]:
    return [word for rule in CONSENT[sample] for word in ("--consent", rule)]


def written(run: Path, sample: str, *more: str | Path) -> dict[str, bytes]:
    """The files as --write leaves them; then they are as before."""
    assert doctor(run, *more, "--write", *words(sample)).exit_code == 0
    after = {name: data for name, data in tree(run).items() if ".rlhfdoctor" not in name}
    assert doctor(run, *more, "--revert").exit_code == 0
    return after


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("change", [as_it_is, crlf, no_newline, latin_1], ids=lambda change: change.__name__)
@pytest.mark.parametrize("sample", CONSENT)
def test_output_is_the_diff_that_is_written(
    sample: str, change: Callable[[bytes], bytes], tool: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shell, JSON and YAML, several files, odd line ends and bytes: applied in the folder of the caller."""
    run = make(tmp_path, sample, change)
    monkeypatch.chdir(tmp_path)
    before, after = tree(run), written(run, sample)
    assert before == tree(run) != after
    diff = doctor("run", *words(sample))
    assert diff.exit_code == 1
    (tmp_path / "fix.diff").write_bytes(diff.stdout_bytes)
    subprocess.run([*tool, "fix.diff"], check=True, capture_output=True)
    assert after == tree(run)


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", ["运行 一", 'a "b" c', "tab\there", "back\\slash", "ünï", "-x", "a'b"])
def test_any_name(name: str, tool: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks, quotes, control characters and letters of all scripts in names, of folders and of files."""
    run = make(tmp_path, SHELL, name=name)
    (run / "launch.sh").rename(run / f"{name}.sh")
    monkeypatch.chdir(tmp_path)
    after = written(tmp_path / name, SHELL)
    (tmp_path / "fix.diff").write_bytes(doctor(tmp_path / name, *words(SHELL)).stdout_bytes)
    subprocess.run([*tool, "fix.diff"], check=True, capture_output=True)
    assert after == tree(run)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("inside", ["", "jobs"], ids=["top", "below"])
def test_within_a_repository(inside: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are relative to the folder of the caller, also below the top of a repository."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    here = tmp_path / inside
    here.mkdir(exist_ok=True)
    run = make(here, SHELL)
    monkeypatch.chdir(here)
    after = written(run, SHELL)
    (here / "fix.diff").write_bytes(doctor("run", *words(SHELL)).stdout_bytes)
    subprocess.run([*GIT, "fix.diff"], check=True)
    assert after == tree(run)


@pytest.mark.parametrize("tool", TOOLS)
def test_files_elsewhere(tool: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The diff applies in the folder that holds all files, which standard error names."""
    run = make(tmp_path, SEVERAL)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    after, shown = written(run, SEVERAL), doctor("../run", *words(SEVERAL))
    assert f"the diff applies in {run / 'config'}: patch -p1 -d" in shown.stderr
    (tmp_path / "fix.diff").write_bytes(shown.stdout_bytes)
    subprocess.run([*tool, tmp_path / "fix.diff"], cwd=run / "config", check=True, capture_output=True)
    assert after == tree(run)


@pytest.mark.parametrize("tool", TOOLS)
def test_link(tool: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link is named by the file it leads to, as neither tool writes through one."""
    run = make(tmp_path, SHELL)
    (tmp_path / "shared").mkdir()
    (run / "launch.sh").rename(tmp_path / "shared" / "launch.sh")
    (run / "launch.sh").symlink_to("../shared/launch.sh")
    monkeypatch.chdir(tmp_path)
    shown = doctor("run", "run/launch.sh", *words(SHELL))
    assert shown.stdout.startswith("--- a/shared/launch.sh\n")
    (tmp_path / "fix.diff").write_bytes(shown.stdout_bytes)
    subprocess.run([*tool, "fix.diff"], check=True, capture_output=True)
    assert "--memory=625g" in (tmp_path / "shared" / "launch.sh").read_text()
