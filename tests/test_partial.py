"""Ctrl-C while logs are read: the verdict of what was read so far, marked as such."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD

from rlhfdoctor.logs.blocks import BLOCK_BYTES

KILL = b"Memory cgroup out of memory: Killed process 204417 (ray::ActorModel) total-vm:91234567kB, anon-rss:71234567kB, file-rss:0kB, shmem-rss:0kB\n"
FILLER = b"nothing of note stands on this line, which is a rather long one for what it says\n"


def test_verdict_of_what_was_read(tmp_path: Path) -> None:
    """A log that never ends: Ctrl-C shows the kill that was read, says that the reading was stopped, and exits as always."""
    pipe = tmp_path / "endless.log"
    os.mkfifo(pipe)
    doctor = subprocess.Popen(
        [sys.executable, "-m", "rlhfdoctor", "analyze", str(pipe)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with pipe.open("wb", buffering=0) as writer:
        blocks = KILL + FILLER * (3 * BLOCK_BYTES // len(FILLER))
        writer.write(blocks)  # more than a pipe holds: when it returns, the doctor has read nearly all of it
        doctor.send_signal(signal.SIGINT)
        out, err = (text.decode() for text in doctor.communicate(timeout=120))
    assert doctor.returncode == 1, err
    assert "stopped by Ctrl-C after 0 of 1 logs" in out
    assert "204417" in out
    assert "Traceback" not in err


def test_nothing_to_rest_a_verdict_on() -> None:
    """Standard input that never ends, of which nothing is known yet: the exit code of Ctrl-C, which is none of a verdict."""
    doctor = subprocess.Popen(
        [sys.executable, "-m", "rlhfdoctor", "analyze", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert doctor.stdin is not None
    doctor.stdin.write(FILLER)
    doctor.stdin.flush()
    while int.from_bytes(ioctl(doctor.stdin, FIONREAD, b"\0" * 4), sys.byteorder):  # until it reads
        assert doctor.poll() is None
        time.sleep(0.01)
    doctor.send_signal(signal.SIGINT)
    try:
        assert doctor.wait(timeout=120) == 130
    finally:
        doctor.kill()
    assert doctor.stdout is not None and doctor.stderr is not None
    assert (doctor.stdout.read(), doctor.stderr.read()) == (b"", b"\ndoctor: stopped by Ctrl-C\n")
    for stream in (doctor.stdin, doctor.stdout, doctor.stderr):
        stream.close()


def test_while_modules_are_imported() -> None:
    """The first tenth of a second leaves no traceback either."""
    program = """
import sys
class Interrupts:
    def find_spec(self, name, *_):
        if name == "rlhfdoctor.cli.bundle":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupts())
from rlhfdoctor.__main__ import main
main()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")
