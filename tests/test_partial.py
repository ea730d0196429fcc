"""Ctrl-C while logs are read: the verdict of what was read so far, marked as such."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

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
