"""Starts a recording: the run's folder, what is known before the start, the recorder as a process of its own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhfdoctor.errors import UsageError
from rlhfdoctor.files import write
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.interpreters import fresh
from rlhfdoctor.privacy.controls import CONTROL
from rlhfdoctor.privacy.secrets import cut_words
from rlhfdoctor.record.recorder_config import RecorderConfig, pass_config, write_config
from rlhfdoctor.record.run_folder import written_to
from rlhfdoctor.record.surroundings import find_packages, keep_configs, our_surroundings, surroundings_of
from rlhfdoctor.sources.cgroupfs import find_chain, find_hierarchy, find_path, read_level
from rlhfdoctor.sources.meminfo import parse_meminfo
from rlhfdoctor.sources.procfs import parse_cmdline, read_boot_id, read_file
from rlhfdoctor.sources.shm import read_shm, read_shm_of
from rlhfdoctor.trace.read import RUN_SCHEMA
from rlhfdoctor.version import VERSION

_CONTROLS = re.compile(rf"(?:(?![\u200c\u200d]|\r\n){CONTROL.pattern})+")
"""But for what joins letters or ends a line: a script within a word stays one that is read as such."""
_START_S = 20
_LOG_BYTES = 2 << 20


def describe_run(
    folder: Path, config: RecorderConfig, *, argv: Sequence[str], pid: int | str = "self", clock_offset_s: float = 0.0
) -> dict[str, Any]:
    """Writes run.json with what is known before the start, and copies of the configuration files.

    Args:
        argv: of the command, or of the process that is attached to.
        pid: whose cgroup, /dev/shm and surroundings are described.
    """
    hierarchy = find_hierarchy()
    path = find_path(hierarchy, "", pid) if hierarchy is not None else None
    levels = [read_level(hierarchy, level) for level in find_chain(hierarchy, path)] if hierarchy and path else []
    memory = parse_meminfo(read_file("/proc/meminfo") or b"")
    shm = read_shm_of("", pid) or read_shm()
    around = surroundings_of(pid) if isinstance(pid, int) else our_surroundings()
    versions = find_packages(argv, around)
    run = {
        "schema": RUN_SCHEMA,
        "name": config.name,
        "node": config.node,
        "doctor": VERSION,
        "argv": cut_words(argv),
        "cwd": around.folder or "",
        "started": time.time(),
        "host": os.uname().nodename,
        "kernel": os.uname().release,
        "boot_id": read_boot_id(),
        "clock_offset_s": clock_offset_s,
        "utc_offset_s": time.localtime().tm_gmtoff,
        "environment": around.shown_environment(),
        "versions": versions,
        "limits": {
            "memory_total_bytes": memory.get("total_bytes"),
            "shm_size_bytes": shm.size_bytes if shm else None,
            "cgroup_version": hierarchy.version if hierarchy else None,
            "cgroups": [
                {"path": level.path, "max_bytes": level.max_bytes, "high_bytes": level.high_bytes} for level in levels
            ],
            **around.limits,
        },
        "configs": [],
    }
    with written_to(folder):
        run["configs"] = keep_configs(folder, argv, around)
        write.replace(folder / "run.json", json.dumps(run, indent=1).encode(), real=True)
        if versions:
            lines = "".join(f"{k}=={v}\n" for k, v in sorted(versions.items()))
            write.replace(folder / "versions.txt", lines.encode("utf-8", "surrogateescape"), real=True)
        if argv:
            line = shell_line(cut_words(argv)) + "\n"
            write.replace(folder / "command.sh", line.encode("utf-8", "surrogateescape"), real=True)
    return run


def shell_line(argv: Iterable[str]) -> str:
    """The command as a shell would take it; what a screen obeys is written by its bytes, as bash reads them.

    >>> shell_line(["python", "a b.py", "x=1"])
    "python 'a b.py' x=1"
    >>> print(shell_line(["--a=\\x1b[2J"]))
    '--a='$'\\x1b''[2J'
    """
    import shlex

    return " ".join(_CONTROLS.sub(_by_bytes, shlex.quote(word)) for word in argv)


def _by_bytes(found: re.Match[str]) -> str:
    """Characters within single quotes as a piece of its own."""
    return "'$'" + "".join(f"\\x{byte:02x}" for byte in found[0].encode("utf-8", "surrogateescape")) + "''"


def start_recorder(folder: Path, config: RecorderConfig, *, daemon: bool = False) -> subprocess.Popen[bytes]:
    """Starts the recorder in a session of its own: it outlives the process that started it.

    Args:
        config: a command without files for its output writes where our own goes.
        daemon: not even as our child; Ray kills the children of a worker that ends
            (RAY_kill_child_processes_on_worker_exit).

    Raises:
        UsageError: it could not be started, or another one writes there.
    """
    streams: tuple[int, ...] = ()
    if config.command and not config.stdout:
        if is_open(1) and is_open(2):
            streams = (os.dup(1), os.dup(2))
        else:
            config = replace(config, stdout=os.devnull, stderr=os.devnull)
    with written_to(folder):
        write_config(str(folder), config)
        log = os.fdopen(write.append(folder / "recorder.log", real=True), "ab")
    env = dict(os.environ)
    if config.command:
        env["RLHFDOCTOR_MARKS"] = str(folder / "marks")
        env["RLHFDOCTOR_RUN"] = str(folder)
        env.setdefault("PYTHONUNBUFFERED", "1")  # what was printed before a SIGKILL must not stay in a buffer
    fork = "import os; os.fork() and os._exit(0); " if daemon else ""
    code = f"{fork}from rlhfdoctor.record.recorder import main; sys.exit(main(sys.argv))"
    before = set(folder.glob("*.trace"))
    orders = pass_config(replace(config, streams=streams))
    with log:
        keep_stdin = bool(config.command) and is_open(0) and not os.isatty(0)
        recorder = subprocess.Popen(
            fresh(code, str(folder), str(orders)),
            env=env,
            start_new_session=True,
            stdin=None if keep_stdin else subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=(*streams, orders),
        )
    for stream in (*streams, orders):
        os.close(stream)
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if set(folder.glob("*.trace")) - before:
            return recorder
        if recorder.poll() not in (None, 0):
            break
        time.sleep(0.01)
    status = recorder.poll()
    words = read_bytes(folder / "recorder.log", _LOG_BYTES).decode("utf-8", "replace").strip().splitlines()
    if words:
        why = quoted(words[-1].removeprefix("doctor: "))
    elif status is not None and status < 0:
        why = say("it was killed by {signal}", signal=signal.Signals(-status).name)
    elif status is not None:
        why = say("it ended with exit status {code}", code=status)
    else:
        why = say("it wrote nothing for {waited_s} s", waited_s=_START_S)
    raise UsageError(say("the recorder did not start: {why}", why=why))


def is_open(descriptor: int) -> bool:
    """Whether one of our standard streams is open; cron and some daemons close them."""
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def restarted(config: RecorderConfig, pid: int) -> RecorderConfig:
    """Options for a recorder that continues after another one died."""
    return replace(config, command=(), pids=(pid,))


def command_of(pid: int) -> list[str]:
    """The argument list of a running process."""
    data = read_file(f"/proc/{pid}/cmdline") or b""
    return [part.decode("utf-8", "replace") for part in data.rstrip(b"\0").split(b"\0")] if data else []


def require_process(pid: int) -> str:
    """The command line of a process that can be attached to.

    Raises:
        UsageError: there is no such process, or it is a kernel thread.
    """
    data = read_file(f"/proc/{pid}/cmdline")
    if data is None:
        raise UsageError(say("--pid {pid}: no such process", pid=pid))
    if not data:
        raise UsageError(say("--pid {pid}: a kernel thread or a zombie, nothing to watch", pid=pid))
    return parse_cmdline(data)
