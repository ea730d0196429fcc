"""What was built, tried as a user has it: `python -m tests.dist dist` installs each file of the folder in an empty environment and runs it.

`python -m tests.dist doctor.pyz` runs that one file on each Python, in an empty home, without pip.

The wheel is tried on every Python from 3.10 to 3.14 that is found (`python3.N` on the path, pyenv's), the source distribution on the first one.
Packages come from the index that pip is set to.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "samples" / "openrlhf-save-kill" / "run"
RECORDED = ROOT / "samples" / "recorded-leak" / "run"
MINORS = range(10, 15)
_PYTHON = "import rlhfdoctor; incident = rlhfdoctor.analyze({sample!r}); print(incident); assert incident.to_dict()['verdict'] == 'cause'"


def pythons() -> Iterator[tuple[str, str]]:
    """Name and path of each interpreter, the oldest first."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    for minor in MINORS:
        known = sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"))
        found = str(known[-1]) if known else shutil.which(f"python3.{minor}")
        if found:
            yield f"3.{minor}", found


def plain() -> dict[str, str]:
    """An environment in which nothing points to this tree."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "RLHFDOCTOR_", "VIRTUAL_ENV"))}


def run(folder: Path, status: int, *words: str | Path) -> str:
    """Runs a command, and ends this program unless it ends with this exit status."""
    done = subprocess.run([str(word) for word in words], cwd=folder, env=plain(), capture_output=True, text=True)
    if done.returncode != status or "Traceback" in done.stderr:
        sys.exit(f"{' '.join(map(str, words))}: exit status {done.returncode}, not {status}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def try_package(python: str, file: Path) -> None:
    """Installs a wheel or a source distribution in an empty environment, and uses it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run(folder, 0, python, "-m", "venv", "env")
        run(folder, 0, folder / "env/bin/pip", "install", "-q", "--disable-pip-version-check", file)
        doctor = folder / "env/bin/doctor"
        (folder / "rlhfdoctor.toml").write_text('language = "zh"\n')
        run(folder, 0, doctor, "--version")
        run(folder, 0, folder / "env/bin/rlhfdoctor", "config")
        (folder / "rlhfdoctor.toml").unlink()
        run(folder, 1, doctor, "analyze", SAMPLE)
        run(folder, 1, doctor, "analyze", RECORDED, "--format", "json", "--lang", "zh")
        run(folder, 1, doctor, "report", RECORDED, "--out", "page.html")
        run(folder, 0, doctor, "watch", "--no-view", "--", "true")
        run(folder, 0, doctor, "estimate", SAMPLE / "launch.sh", "--host-memory", "2T", "--container-memory", "1T", "--gpu", "h100")
        run(folder, 0, doctor, "rules", "explain", "host-leak")
        run(folder, 0, folder / "env/bin/python", "-m", "compileall", "-q", "env/lib")
        run(folder, 0, folder / "env/bin/python", "-c", _PYTHON.format(sample=str(SAMPLE)))


def try_zipapp(file: Path) -> None:
    """Runs the single file on every Python that is found, none of whose packages it may use."""
    for name, python in pythons():
        with tempfile.TemporaryDirectory() as home:
            words = ("env", "-i", f"HOME={home}", "PATH=/usr/bin:/bin", python, file)
            run(Path(home), 0, *words, "--version")
            run(Path(home), 0, *words, "watch", "--no-view", "--out", "run", "--", "true")
            run(Path(home), 0, *words, "watch", "--no-view", "--", "sleep", "1")
            run(Path(home), 1, *words, "analyze", RECORDED)
            print(f"Python {name}: {file.name} works", flush=True)


def main(folder: Path) -> None:
    """Tries each file of the folder; the first that fails ends it."""
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    found = list(pythons())
    for number, (name, python) in enumerate(found):
        for file in (wheel, source) if number == 0 else (wheel,):
            try_package(python, file.resolve())
            print(f"Python {name}: {file.name} works", flush=True)
    missing = {f"3.{minor}" for minor in MINORS} - {name for name, _ in found}
    print(f"not here, so not tried: {', '.join(sorted(missing)) or 'none'}")


if __name__ == "__main__":
    given = Path(sys.argv[1]).resolve()
    try_zipapp(given) if given.is_file() else main(given)
