"""`doctor watch` as a function: flags -> folder, recorder, view, verdict."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.language import load_language
from rlhfdoctor.i18n.message import say
from rlhfdoctor.record.lines import say_end, say_left, say_start, short_path, teller
from rlhfdoctor.record.log_space import LEAST_FREE_BYTES
from rlhfdoctor.record.naming import name_of
from rlhfdoctor.record.notices import BELL, VARIABLE
from rlhfdoctor.record.recorder_config import RecorderConfig
from rlhfdoctor.record.run_folder import make_folder
from rlhfdoctor.record.start import (
    command_of,
    describe_run,
    is_open,
    require_process,
    start_recorder,
)
from rlhfdoctor.record.watch import Outcome, Watch, kept_signals
from rlhfdoctor.sources.cgroupfs import find_hierarchy, find_path, list_processes
from rlhfdoctor.sources.procfs import list_pids, parse_cmdline, read_file
from rlhfdoctor.sources.ray import find_node
from rlhfdoctor.trace.record import is_a
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary.names import Record

_BAD_END: tuple[Record, ...] = (RECORD.kernel.line, RECORD.cgroup.oom, RECORD.node.lost)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """Options given by the user."""

    command: tuple[str, ...] = ()
    pids: tuple[int, ...] = ()
    cgroup: str | None = None
    attach: str | None = None
    out: str | None = None
    interval_s: float = 1.0
    alert_at_s: float = 600.0
    alert_command: str | None = None
    notify: tuple[str, ...] = ()
    """URLs of apprise, or `bell`; besides those of RLHFDOCTOR_NOTIFY."""
    port: int | None = None
    metrics: tuple[str, ...] = ()
    view: bool = True
    language: str = "en"


def watch(options: WatchOptions, verdict: Callable[[Path, bool], int]) -> int:
    """Records and waits; the exit status for the shell.

    Args:
        verdict: analyzes the folder and prints; given whether a command was run. 1 for an incident.

    Raises:
        UsageError: nothing, or too much, to watch; no such process; the folder cannot be written.
    """
    urls = (*options.notify, *os.environ.get(VARIABLE, "").split())
    if urls:
        from rlhfdoctor.record.send import check

        check(urls)
        os.environ[VARIABLE] = " ".join(urls)  # for the recorder, also for one that goes on in its place
    if options.attach is not None:
        if options.command or options.pids or options.cgroup is not None:
            raise UsageError(say("--attach stands alone: it comes back to a recording, and starts nothing"))
        return _attach(options, verdict, bell=BELL in urls)
    config, argv, folder = prepare(options)
    is_kept = bool(config.stdout) or not config.command
    live = is_kept and options.view and is_open(1) and os.isatty(1) and os.environ.get("TERM") != "dumb"
    free = shutil.disk_usage(folder).free
    with kept_signals() as kept:
        recorder = start_recorder(folder, config)
        say_start(folder, free, teller(options.language), is_kept=is_kept)
        session = Watch(folder, recorder, config, through=not live, live=live, bell=BELL in urls)
        outcome = _wait(session, live, options, kept)
    return _finish(outcome, folder, bool(argv and config.command), verdict, options)


def prepare(options: WatchOptions) -> tuple[RecorderConfig, list[str], Path]:
    """Options for the recorder, the argument list that is watched, and the run's folder, with run.json in it."""
    modes = [bool(options.command), bool(options.pids), options.cgroup is not None]
    if sum(modes) != 1:
        raise UsageError(
            say(
                "nothing to watch: give a command behind --, or --pid, --cgroup or --ray.\n"
                "For example: doctor watch -- python train.py"
            )
            if not any(modes)
            else say("give one of: a command behind --, --pid, --cgroup, --ray")
        )
    if options.port is not None and find_spec("prometheus_client") is None:
        raise UsageError(
            say("--metrics-port: the package prometheus_client is missing: pip install 'rlhfdoctor[metrics]'")
        )
    cgroup, pids = options.cgroup, options.pids
    if options.command:
        argv, name = list(options.command), name_of(options.command)
        if shutil.which(argv[0]) is None:
            raise UsageError(say("{command}: no such command, or it may not be run", command=argv[0]))
    elif pids:
        for pid in pids:
            require_process(pid)
        argv, name = command_of(pids[0]), name_of(command_of(pids[0]))
    else:
        assert cgroup is not None
        cgroup, argv, name = find_cgroup(cgroup), [], Path(cgroup).name or "cgroup"
    folder = make_folder(options.out, name)
    output = ("", "")
    if options.command and shutil.disk_usage(folder).free >= LEAST_FREE_BYTES:
        output = ("job.log", "job.log") if _same_stream() else ("job.out.log", "job.err.log")
    stdout, stderr = (str(folder / "logs" / name) if name else "" for name in output)
    config = RecorderConfig(
        name=name,
        node="",
        command=options.command,
        pids=pids,
        cgroup=cgroup,
        interval_s=options.interval_s,
        stdout=stdout,
        stderr=stderr,
        ignore=(os.getpid(),),
        alert_at_s=options.alert_at_s,
        alert_command=options.alert_command,
        port=options.port,
        metrics=options.metrics,
    )
    first = pids or tuple(list_processes(cgroup) if cgroup is not None else ())
    describe_run(folder, config, argv=argv, pid=first[0] if first else "self")
    return config, argv, folder


def find_cgroup(path: str) -> str:
    """The folder of a cgroup: a path, a path below the hierarchy, or `auto` for our own.

    Raises:
        UsageError: there is no such cgroup, or no memory controller.
    """
    hierarchy = find_hierarchy()
    if hierarchy is None:
        raise UsageError(say("--cgroup: no cgroup hierarchy with the memory controller is mounted here"))
    if path.strip("/ ") == "":
        raise UsageError(
            say("--cgroup: the whole node is no cgroup of a run; give the path of one, or auto for our own")
        )
    if path == "auto":
        found = find_path(hierarchy, "", "self")
        if found is None:
            raise UsageError(say("--cgroup auto: our own memory cgroup cannot be seen"))
        return found
    for folder in (path, hierarchy.mount + "/" + path.strip("/")):
        if Path(folder, "cgroup.procs").exists():
            if not list_processes(folder):
                raise UsageError(say("--cgroup {path}: no process is in it", path=path))
            return folder.rstrip("/")
    raise UsageError(
        say(
            "--cgroup {path}: no such cgroup below {mount}. See /proc/PID/cgroup for a process's path",
            path=path,
            mount=hierarchy.mount,
        )
    )


def find_ray_pids() -> list[int]:
    """The raylets of this machine with everything that Ray's services started; empty where Ray does not run."""
    found = []
    for pid in list_pids():
        command = parse_cmdline(read_file(f"/proc/{pid}/cmdline", 4096) or b"")
        if find_node(pid, command) is not None or "/gcs_server" in command.split(" ", 1)[0]:
            found.append(pid)
    return found


def _same_stream() -> bool:
    """Whether our standard output and error are the same: then the job's stay the same too, in order."""
    try:
        one, two = os.fstat(1), os.fstat(2)
    except OSError:
        return True
    return (one.st_dev, one.st_ino, one.st_rdev) == (two.st_dev, two.st_ino, two.st_rdev)


def _attach(options: WatchOptions, verdict: Callable[[Path, bool], int], *, bell: bool) -> int:
    folder = Path(options.attach or "")
    if not any(folder.glob("*.trace")):
        raise UsageError(
            say("--attach {folder}: no trace in it; give the folder that doctor watch named", folder=str(folder))
        )
    live = options.view and is_open(1) and os.isatty(1) and os.environ.get("TERM") != "dumb"
    session = Watch(folder.resolve(), None, through=False, live=True, bell=bell)
    outcome = _wait(session, live, options)
    return _finish(outcome, folder, outcome.state.job_pid is not None, verdict, options)


def _wait(session: Watch, live: bool, options: WatchOptions, kept: Collection[int] = ()) -> Outcome:
    if not live:
        return session.wait(tell=teller(options.language), kept=kept)
    from rlhfdoctor.record.screen import wait_on_screen

    return wait_on_screen(session, short_path(session.folder), load_language(options.language), kept)


def _finish(
    outcome: Outcome, folder: Path, command: bool, verdict: Callable[[Path, bool], int], options: WatchOptions
) -> int:
    """What is printed at the end, and the exit status: the command's own if there was one."""
    tell = teller(options.language)
    if outcome.detached:
        return say_left(outcome, folder, tell)
    if outcome.running:
        pid = outcome.state.job_pid
        tell(say("the recorder is dead, and pid {pid} still runs. Go on with: doctor watch --pid {pid}", pid=pid))
        return 1
    code = outcome.exit_code
    bad = (
        (code not in (0, None))
        or outcome.state.killed_count > 0
        or any(is_a(event, *_BAD_END) for event in outcome.state.events)
    )
    if command and code is None:
        tell(say("how the command ended is not known: its recorder died with it"))
        bad = True
    say_end(outcome, folder, bad, tell)
    found = 0
    if bad or not command:
        time.sleep(min(options.interval_s, 0.5))
        try:
            found = verdict(folder, command) if folder.exists() else 1
        except OSError:
            if not command:
                raise
            found = 1  # it could not be printed; the command's own status is what counts
    else:
        tell(say("the command ended well; the trace is in {folder}", folder=short_path(folder)))
    if not command:
        return found
    if code is None:
        return 1
    return code if code >= 0 else 128 - code
