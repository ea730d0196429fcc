"""Runs `doctor` as a process of its own under a bound, and says what it used.

A process in between starts the command and waits for it: the peak of a process counts what it was forked from, and a
test session is larger than the bound.
"""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PEAK_MIB = 300
"""What a command may hold at its peak, whatever it reads."""
SECONDS = 10
"""What a command may take; recorded, not asserted, since a test may run on a loaded machine."""
KILL_S = 60
"""Of processor time; who takes more hangs. Of wall-clock time, where nothing is computed, it is `WAIT_S`."""
WAIT_S = 150
ADDRESS_BYTES = 4 << 30
"""Address space of a command: a case that fails may not take the machine along."""
FAULTS = ("Traceback (most recent call last)", "error of the doctor itself", "internal error in doctor")
EXIT_CODES = (0, 1, 2, 3)
TREE = Path(os.environ.get("RLHFDOCTOR_ATTACKED_TREE") or Path(__file__).resolve().parents[2])
"""The checkout whose `doctor` is attacked."""
START = "import sys; del sys.path[0]; sys.argv[0] = 'doctor'; from rlhfdoctor.cli import main; main()"
"""As the installed script starts: the current folder is not searched for modules."""
_BETWEEN = """
import json, os, resource, signal, sys, time
order = json.loads(sys.argv[1])
began = time.monotonic()
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (order["address"], order["address"]))
    resource.setrlimit(resource.RLIMIT_CPU, (order["cpu"], order["cpu"]))
    if order["file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["file"], order["file"]))
    os.umask(0o022)
    os.execve(order["words"][0], order["words"], order["env"])
def end(*_):
    os.killpg(pid, signal.SIGKILL)
signal.signal(signal.SIGALRM, end)
signal.setitimer(signal.ITIMER_REAL, order["wall"])
_, status, used = os.wait4(pid, 0)
found = {"code": os.waitstatus_to_exitcode(status), "peak_mib": used.ru_maxrss / 1024,
         "cpu_s": used.ru_utime + used.ru_stime, "seconds": time.monotonic() - began}
with open(order["report"], "w") as out:
    json.dump(found, out)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command did."""

    code: int
    """Exit status; -N: killed by signal N."""
    stdout: str
    stderr: str
    peak_mib: float
    seconds: float
    cpu_s: float
    """Of the command and the workers that it waited for."""

    @property
    def report(self) -> dict[str, Any]:
        """Standard output as JSON."""
        found = json.loads(self.stdout)
        assert isinstance(found, dict)
        return found

    @property
    def killer(self) -> str | None:
        """What the report says ended the run."""
        found = self.report["killer"]
        return None if found is None else str(found)

    def gap(self, name: str | Path) -> bool:
        """Whether a gap of the report names this file."""
        return any(str(name) in str(gap["what"]) for gap in self.report["gaps"])

    def check(self, codes: Sequence[int] = EXIT_CODES, peak_mib: float = PEAK_MIB) -> Done:
        """Ended by itself, within its memory, with an exit code of the contract and without a fault of its own."""
        assert self.code in codes, (self.code, self.cpu_s, self.seconds, self.stderr[-2000:])
        for fault in FAULTS:
            assert fault not in self.stdout + self.stderr, (self.stdout + self.stderr)[-3000:]
        assert self.cpu_s <= KILL_S, f"{self.cpu_s:.0f} s of processor time"
        assert self.peak_mib <= peak_mib, f"{self.peak_mib:.0f} MiB at its peak"
        return self


def doctor(
    *words: str | Path,
    home: Path,
    cwd: Path | None = None,
    before: str = "",
    terminal: bool = False,
    file_bytes: int = 0,
    wait_s: float = WAIT_S,
    **env: str,
) -> Done:
    """Runs `doctor WORDS`.

    Args:
        home: folder for what belongs to the user and is not part of the attack: caches, temporary files.
        before: a shell line that runs first, in the same process.
        terminal: standard output and standard error are one terminal, and come back as `stdout`.
        file_bytes: no file may become larger.
        wait_s: of wall-clock time; then the command is killed.
    """
    own = [sys.executable, "-c", START, *map(str, words)]
    report = home / f"measured-{time.monotonic_ns()}.json"
    order = {
        "words": ["/bin/sh", "-c", f'{before}; exec "$@"', "sh", *own] if before else own,
        "env": environment(home) | env,
        "address": ADDRESS_BYTES,
        "cpu": KILL_S,
        "wall": wait_s,
        "file": file_bytes,
        "report": str(report),
    }
    between = [sys.executable, "-I", "-S", "-c", _BETWEEN, json.dumps(order)]
    if terminal:
        stdout, stderr = _on_terminal(between, cwd or home)
    else:
        done = subprocess.run(between, cwd=cwd or home, capture_output=True, stdin=subprocess.DEVNULL, check=True)
        stdout, stderr = done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
    found = Done(stdout=stdout, stderr=stderr, **json.loads(report.read_text()))
    report.unlink()
    if log := os.environ.get("RLHFDOCTOR_ATTACKS_LOG"):
        name = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0].rpartition("/")[2]
        line = f"{name}\t{words[0]}\t{found.code}\t{found.peak_mib:.0f}\t{found.seconds:.1f}\t{found.cpu_s:.1f}\n"
        with Path(log).open("a") as out:
            out.write(line)
    return found


def environment(home: Path) -> dict[str, str]:
    """Of a user who knows nothing of tests: no switch for debugging, temporary files of its own; compiled patterns are shared."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    (home / "tmp").mkdir(exist_ok=True)
    return kept | {
        "PYTHONPATH": str(TREE),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(home),
        "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
        "TMPDIR": str(home / "tmp"),
        "NO_COLOR": "1",
        "TERM": "dumb",
    }


def _on_terminal(words: Sequence[str], cwd: Path) -> tuple[str, str]:
    ours, theirs = pty.openpty()
    found = bytearray()

    def take() -> None:
        with contextlib.suppress(OSError):  # the terminal of a command that has ended
            while data := os.read(ours, 1 << 16):
                found.extend(data)

    reader = threading.Thread(target=take)
    reader.start()
    subprocess.run(words, cwd=cwd, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, check=True)
    os.close(theirs)
    reader.join(30)
    os.close(ours)
    return found.decode("utf-8", "replace"), ""


def kill_below(folder: Path) -> None:
    """Ends what a test has left: processes whose command line names its folder. A frozen recorder outlives its watch."""
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if int(entry.name) != os.getpid() and str(folder).encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)


def remove(folder: Path) -> None:
    """Removes what a test wrote: folders may be deeper than Python can walk."""
    subprocess.run(["rm", "-rf", "--one-file-system", *folder.iterdir()], check=False)
