"""`doctor watch` as users run it: a real command, a real terminal, the real kernel, real Ray."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.trace.follow import Follower
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.trace.record import make_record
from rlhfdoctor.trace.store import Writer
from rlhfdoctor.trace.tables import Trace, read_trace
from rlhfdoctor.types import Death, Incident
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from tests.bench.survive import MEMORY, limited, running

pytestmark = pytest.mark.usefixtures("kernel_alone")  # a stranger's kill is in our kernel log
ROOT = Path(__file__).resolve().parent.parent.parent
WATCH = (sys.executable, "-m", "rlhfdoctor", "watch")
ENTER = ("/bin/sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"')
"""Joins the cgroup that follows, then becomes the command behind it."""
NEEDS_CGROUP = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a memory cgroup"),
    pytest.mark.skipif(not (MEMORY / "memory.limit_in_bytes").exists(), reason="needs the cgroup v1 memory controller"),
]
PLENTY_S = 60.0
HOG = "import time\nkept = []\nwhile True:\n    kept.append(bytearray(b'x') * (8 << 20))\n    time.sleep(0.1)\n"
RAY_HOG = """
import time
import ray
ray.init(num_cpus=3, object_store_memory=80 << 20, include_dashboard=False)

@ray.remote
class ActorModelRayActor:
    def __init__(self):
        self.kept, self.due = [], time.monotonic()

    def generate(self, count):  # by the clock, so that the load of the machine does not matter
        for _ in range(count):
            self.kept.append(bytearray(8 << 20))
            self.due += 0.25
            time.sleep(max(0.0, self.due - time.monotonic()))

@ray.remote
class CriticModelRayActor:
    def hold(self, size):
        self.kept = bytearray(size)

critic = CriticModelRayActor.remote()
ray.get(critic.hold.remote(100 << 20))
actor = ActorModelRayActor.remote()
for step in range(1000):
    ray.get(actor.generate.remote(8))
    print(f"step:{step} - actor/pg_loss:0.1 - reward/mean:0.5", flush=True)
"""
RAY_LIMIT_BYTES = 1600 << 20


def environment(**more: str) -> dict[str, str]:
    """Ours, with the package importable from anywhere, and without what a terminal of ours says."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("RLHFDOCTOR_", "RAY_"))}
    ray = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
    return {**plain, **ray, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", **more}


def watch(
    folder: Path, *words: str | Path, before: Sequence[str | Path] = (), **more: str
) -> subprocess.CompletedProcess[bytes]:
    """Runs `doctor watch` to its end."""
    line = [*before, *WATCH, "--out", folder, *words]
    return subprocess.run(
        line, cwd=folder.parent, env=environment(**more), capture_output=True, timeout=120, check=False
    )


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts `doctor watch` with pipes; what is still running in the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def run(folder: Path, *words: str | Path) -> subprocess.Popen[bytes]:
        line = [*WATCH, "--out", folder, *words]
        pipe = subprocess.PIPE
        started.append(
            subprocess.Popen(line, cwd=tmp_path, env=environment(), stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
        )
        return started[-1]

    yield run
    for process in started:
        with contextlib.suppress(OSError):
            process.kill()
        process.communicate()


def wait_for(condition: Callable[[], Any], most_s: float = PLENTY_S) -> Any:
    """The first result that is true, or the last one when the time is over."""
    end = time.monotonic() + most_s
    while not (found := condition()) and time.monotonic() < end:
        time.sleep(0.02)
    return found


def event_of(folder: Path, kind: str) -> dict[str, Any] | None:
    """The first event of a kind that can be read by now."""
    found = [item for item, _ in Follower(str(folder)).read() if isinstance(item, dict)]
    return next((item for item in found if item["kind"] == kind), None)


def kinds_of(folder: Path) -> list[str]:
    """The kinds of all events, in order."""
    return [str(event["kind"]) for event in read_node(folder).events]


def recorder_of(folder: Path) -> int:
    """The pid of the recorder that wrote last."""
    follower = Follower(str(folder))
    follower.read()
    return int(follower.header["pid"])


def own_lines(text: bytes) -> list[str]:
    """What is on standard error and not from the doctor."""
    return [line for line in text.decode().splitlines() if line and not line.startswith("doctor: ")]


class Terminal:
    """`doctor watch` in a terminal of its own."""

    def __init__(self, columns: int, rows: int, *words: str | Path, cwd: Path) -> None:
        """Starts it."""
        self.pid, self._fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execve(sys.executable, [*WATCH, *map(str, words)], environment(COLUMNS="", LINES=""))
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.raw = b""
        self.code: int | None = None

    def pump(self) -> bytes:
        """Takes what was written by now; everything so far."""
        ready = select.poll()  # select() takes no descriptor above 1023
        ready.register(self._fd, select.POLLIN)
        while ready.poll(0):
            try:
                data = os.read(self._fd, 1 << 16)
            except OSError:  # the other side is closed
                break
            if not data:
                break
            self.raw += data
        return self.raw

    def press(self, keys: bytes) -> None:
        """Types."""
        os.write(self._fd, keys)

    def end(self) -> int:
        """Waits for its end; the exit status."""

        def ended() -> bool:
            self.pump()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if pid else None
            return bool(pid)

        wait_for(ended)
        self.pump()
        assert self.code is not None
        return self.code

    def close(self) -> None:
        """Kills what is left."""
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._fd)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    """Opens terminals of 80x24."""
    opened: list[Terminal] = []

    def run(*words: str | Path) -> Terminal:
        opened.append(Terminal(80, 24, *words, cwd=tmp_path))
        return opened[-1]

    yield run
    for item in opened:
        item.close()


def show_screen(raw: bytes) -> list[str]:
    """What an 80x24 terminal shows after these bytes."""
    pyte = pytest.importorskip("pyte", reason="needs pyte to know what a terminal shows")
    screen = pyte.Screen(80, 24)
    pyte.ByteStream(screen).feed(raw)
    return list(screen.display)


def death_of(incident: Incident) -> Death:
    """The death of an incident that has one."""
    assert incident.death is not None
    return incident.death


def kill_s(trace: Trace) -> float:
    """When the kernel killed, Unix seconds."""
    return float(next(e["wall_ns"] for e in trace.events if e["kind"] in ("kernel.line", "oom_kill")) / 1e9)


@pytest.mark.parametrize(
    ("script", "status"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_exit_status(tmp_path: Path, script: str, status: int) -> None:
    """The exit status is the command's own, 128 and the number of the signal where one ended it."""
    assert watch(tmp_path / "run", "--", "sh", "-c", script).returncode == status


def test_streams(tmp_path: Path) -> None:
    """Standard output and error of the command come through apart from each other, byte for byte."""
    script = r"printf 'one\r\n\000\377 two'; echo mistake >&2"
    done = watch(tmp_path / "run", "--", "sh", "-c", script)
    assert (done.returncode, done.stdout, own_lines(done.stderr)) == (0, b"one\r\n\0\xff two", ["mistake"])


def test_much_output(tmp_path: Path) -> None:
    """Megabytes of output come through whole, with standard input of the command as it was."""
    done = watch(tmp_path / "run", "--", "seq", "300000")
    expected = "".join(f"{number}\n" for number in range(1, 300001)).encode()
    assert hashlib.sha256(done.stdout).hexdigest() == hashlib.sha256(expected).hexdigest()


@pytest.mark.parametrize("key", [b"\x03", b"q"], ids=["Ctrl-C", "q"])
def test_leave_and_come_back(tmp_path: Path, terminal: Callable[..., Terminal], key: bytes) -> None:
    """Ctrl-C or q leaves the view while the command goes on, and --attach waits for its end with verdict and exit status."""
    folder = tmp_path / "run"
    screen = terminal("--out", folder, "--", "sh", "-c", "sleep 5; exit 3")
    wait_for(lambda: b"node memory" in screen.pump())
    screen.press(b"p")
    wait_for(lambda: b"p roles" in screen.pump())
    screen.press(key)
    left = screen.end()
    job = (event_of(folder, "job.started") or {})["pid"]
    alive, recording = running(job), running(recorder_of(folder))
    again = subprocess.run(
        [*WATCH, "--attach", folder], env=environment(), capture_output=True, timeout=60, check=False
    )
    assert (left, b"left the view" in screen.raw, alive, recording) == (0, True, True, True)
    assert (again.returncode, again.stdout, "exit status 3" in again.stderr.decode()) == (3, b"", True)


def test_terminate(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """SIGTERM goes to the command, and its exit status comes back."""
    script = 'trap "echo got it; exit 5" TERM; echo up; while :; do sleep 0.1; done'
    process = start(tmp_path / "run", "--", "sh", "-c", script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    process.terminate()
    output, _ = process.communicate(timeout=PLENTY_S)
    assert (process.returncode, output) == (5, b"got it\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_ended_while_it_starts(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], number: signal.Signals, code: int
) -> None:
    """A signal that comes before the command is known still ends it; nothing goes on unseen."""
    folder = tmp_path / "run"
    process = start(folder, "--", "sleep", "61.5")
    assert wait_for((folder / "recorder.log").exists)
    process.send_signal(number)
    process.communicate(timeout=PLENTY_S)
    assert (process.returncode, kinds_of(folder)[-1]) == (code, "recorder.end")


def test_left_while_it_starts(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """A closed terminal leaves run and recorder behind, and what is printed says how both are ended."""
    folder = tmp_path / "run"
    process = start(folder, "--", "sleep", "61.5")
    assert wait_for((folder / "recorder.log").exists)
    process.send_signal(signal.SIGHUP)
    _, errors = process.communicate(timeout=PLENTY_S)
    found = re.search(rb"kill -TERM -(\d+)", errors)
    assert process.returncode == 0 and found is not None, errors
    os.killpg(int(found[1]), signal.SIGTERM)
    assert wait_for(lambda: kinds_of(folder)[-1] == "recorder.end")


@pytest.mark.parametrize("how", ["moved", "removed"])
def test_folder_that_goes_while_it_is_recorded(
    tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]], how: str
) -> None:
    """Somebody tidies up: the job goes on and its output is passed on to its end, and what is said has a cause."""
    folder = tmp_path / "run"
    process = start(folder, "--", "sh", "-c", "echo first; sleep 3; echo last; exit 5")
    assert process.stdout is not None
    assert process.stdout.readline() == b"first\n"
    shutil.move(folder, tmp_path / "elsewhere") if how == "moved" else shutil.rmtree(folder)
    output, errors = process.communicate(timeout=PLENTY_S)
    assert output == b"last\n"
    assert b"is gone" in errors and b"internal error" not in errors and b"Traceback" not in errors, errors
    assert process.returncode != 0


def test_attached_to_a_folder_of_another_machine(tmp_path: Path) -> None:
    """A trace names pids: only those that surely are this run's are named to be killed."""
    folder = tmp_path / "run"
    folder.mkdir(0o700)
    writer = Writer(str(folder), {"run": "x", "host": "elsewhere", "boot_id": "other", "pid": 1})
    writer.event(make_record(RECORD.job.started, {R.pid: 1}))
    process = subprocess.Popen([*WATCH, "--attach", folder], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PLENTY_S)
    writer.close()
    assert b"left the view" in errors and b"kill" not in errors, errors


def test_recorder_is_killed(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """When the recorder is killed another one goes on, and the exit status is still the command's."""
    folder = tmp_path / "run"
    process = start(folder, "--", "sh", "-c", "echo first; sleep 4; echo last; exit 7")
    wait_for(lambda: event_of(folder, "process.seen"))
    os.kill(recorder_of(folder), signal.SIGKILL)
    output, errors = process.communicate(timeout=PLENTY_S)
    assert (process.returncode, output, "another one goes on" in errors.decode()) == (7, b"first\nlast\n", True)
    assert kinds_of(folder).count("recorder.start") == 2


def test_recorder_is_asked_to_stop(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """As the doctor itself says how: the command goes on, is waited for, and its status comes back."""
    folder = tmp_path / "run"
    process = start(folder, "--", "sh", "-c", "echo first; sleep 4; echo last; exit 7")
    wait_for(lambda: event_of(folder, "process.seen"))
    os.kill(recorder_of(folder), signal.SIGTERM)
    output, errors = process.communicate(timeout=PLENTY_S)
    assert (process.returncode, output) == (7, b"first\nlast\n")
    assert b"the recording was stopped; the command goes on" in errors and b"is not known" not in errors


@pytest.mark.parametrize("streams", ["2>/dev/full", ">/dev/full", ">&-", "<&- >&- 2>&-"])
def test_streams_that_take_nothing(tmp_path: Path, streams: str) -> None:
    """A full disk under the log, a daemon without streams: the run ends as it would, with its own status."""
    words = [*WATCH, "--no-view", "--out", tmp_path / "run", "--", "sh", "-c", "sleep 1; exit 33"]
    line = ["sh", "-c", f'exec "$@" {streams}', "sh", *words]
    done = subprocess.run(line, cwd=tmp_path, env=environment(), capture_output=True, timeout=120, check=False)
    assert (done.returncode, kinds_of(tmp_path / "run")[-1]) == (33, "recorder.end")
    assert b"internal error" not in done.stderr and b"Traceback" not in done.stderr


def test_long_interval(tmp_path: Path) -> None:
    """The end of the command is seen when it comes, not at the next sample."""
    done = watch(tmp_path / "run", "--interval", "1h", "--", "sh", "-c", "sleep 2; exit 3")  # within 120 s
    assert (done.returncode, kinds_of(tmp_path / "run")[-1]) == (3, "recorder.end")


def test_script_without_an_interpreter(tmp_path: Path) -> None:
    """It runs from every shell, so it runs here."""
    script = tmp_path / "train"
    script.write_text("echo $1; exit 7\n")
    script.chmod(0o755)
    done = watch(tmp_path / "run", "--", script, "a b")
    assert (done.returncode, done.stdout) == (7, b"a b\n")


def test_command_that_cannot_be_started(tmp_path: Path) -> None:
    """What the kernel says is on the screen."""
    script = tmp_path / "train"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    done = watch(tmp_path / "run", "--", script)
    assert done.returncode == 127
    assert f"could not be started: {script}: No such file or directory" in done.stderr.decode()


def test_ended_while_its_output_is_passed_on(tmp_path: Path, start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """A reader that takes nothing holds us up, not the command; a signal then says how that ended."""
    folder = tmp_path / "run"
    process = start(folder, "--", "sh", "-c", "head -c 8000000 /dev/zero; exit 9")
    assert wait_for(lambda: event_of(folder, "job.exited"))
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PLENTY_S)
    assert process.returncode == 9 and b"left the view" not in errors


@pytest.mark.parametrize("number", [pytest.param(0, marks=NEEDS_CGROUP)])
def test_killed_by_the_kernel(tmp_path: Path, number: int) -> None:
    """A kill at the cgroup's limit: status 137, a verdict that names killer and role, samples up to the kill."""
    folder = tmp_path / "run"
    with limited(f"watch-{number}") as cgroup:
        done = watch(folder, "--", sys.executable, "-c", HOG, before=[*ENTER, cgroup])
    trace = read_trace(folder)
    last_s = max(at.timestamp() for at in trace["recorder"]["time"] if at.timestamp() <= kill_s(trace))
    death, told = death_of(analyze([str(folder)])), done.stderr.decode()
    assert (done.returncode, done.stdout) == (137, b"")
    assert (death.killer, death.victim.role) == ("kernel-oom-cgroup", "driver")
    assert ("kernel-oom-cgroup" in told or "memory limit" in told, "driver" in told) == (True, True)
    assert (kinds_of(folder)[-1], kill_s(trace) - last_s <= 1.0) == ("recorder.end", True)


def test_pid(tmp_path: Path) -> None:
    """A running process is followed to its end with its children; from outside its end is unknown: exit status 3."""
    with subprocess.Popen(["sh", "-c", "sleep 2 & wait"]) as process:
        done = watch(tmp_path / "run", "--pid", str(process.pid))
    seen = [event["command"] for event in read_node(tmp_path / "run").events if event["kind"] == "process.seen"]
    assert (done.returncode, seen) == (3, ["sh -c sleep 2 & wait", "sleep 2"])


@pytest.mark.parametrize("number", [pytest.param(0, marks=NEEDS_CGROUP)])
def test_cgroup(tmp_path: Path, number: int) -> None:
    """All processes of a cgroup are followed until none is left, and its limit is known."""
    with limited(f"watch-cgroup-{number}") as cgroup, subprocess.Popen([*ENTER, cgroup, "sleep", "2"]) as process:
        wait_for(lambda: (cgroup / "cgroup.procs").read_text().strip())
        done = watch(tmp_path / "run", "--cgroup", cgroup)
        level = str(cgroup)
    events = read_node(tmp_path / "run").events
    assert (done.returncode, process.pid in [e.get("pid") for e in events if e["kind"] == "process.seen"]) == (3, True)
    assert [e["limit_bytes"] for e in events if e["kind"] == "limit.seen" and e["level"] == level] == [300 << 20]


def test_loader_that_is_named_late(tmp_path: Path) -> None:
    """A forked loader has its parent's name until torch gives it its own; its role follows at once, not at the next full reading."""
    script = (
        "import ctypes, os, time\n"
        "if os.fork() == 0:\n"
        "    time.sleep(1.2)\n"
        "    ctypes.CDLL(None).prctl(15, b'pt_data_worker', 0, 0, 0)\n"
        "    kept = bytearray(b'x') * (8 << 20)\n"
        "    time.sleep(4)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    (tmp_path / "train.py").write_text(script)
    done = watch(tmp_path / "run", "--", sys.executable, tmp_path / "train.py")
    roles = [
        event["role"]
        for event in read_node(tmp_path / "run").events
        if event["kind"] in ("process.seen", "process.named")
    ]
    assert (done.returncode, roles) == (0, ["driver", "worker", "data loader"])


def test_view(tmp_path: Path, terminal: Callable[..., Terminal]) -> None:
    """The live view of 80x24 shows limit, roles, last lines of the output and how to leave; then it is gone."""
    script = 'for n in 1 2 3 4 5 6 7 8; do echo "step:$n - loss"; sleep 0.5; done'
    screen = terminal("--out", tmp_path / "run", "--", "sh", "-c", script)
    wait_for(lambda: b"step:4 - loss" in screen.pump())
    time.sleep(0.6)
    lines = show_screen(screen.pump())
    status = screen.end()
    text = "\n".join(lines)
    assert [
        part for part in ("node memory", "driver", "step:4 - loss", "Ctrl-C leaves the view") if part not in text
    ] == []
    assert (lines[0].startswith("rlhfdoctor "), status) == (True, 0)
    assert re.search(rb"\x1b\[\?1049l.*the command ended well", screen.raw, re.S) is not None


def forecasts(trace: Trace) -> list[tuple[float, float | None]]:
    """(seconds that were left, seconds that the forecast for the cgroup told), from half-way until the limit is full.

    That is what is forecast; the kill may be half a minute later, while the kernel takes back pages of programs and reads them again,
    from some 20 MiB before the limit on. The hog takes 32 MiB a second, so the limit is full a second after that much is left.
    """
    table = [row for row in trace["limit"].to_dicts() if row["name"] == "cgroup"]
    full = [row["time"].timestamp() + 1.0 for row in table if row["used_bytes"] >= row["limit_bytes"] - (32 << 20)]
    end_s = min([*full, kill_s(trace)])
    rows = [(row["time"].timestamp(), row["left_s"]) for row in table]
    middle_s = (rows[0][0] + end_s) / 2
    return [(end_s - at, left) for at, left in rows if middle_s <= at < end_s]


def hit_ratio(told: Sequence[tuple[float, float | None]]) -> float:
    """Share of the forecasts that are within a fifth, or one second, of the truth."""
    good = [left is not None and abs(left - true) <= max(0.2 * true, 1.0) for true, left in told]
    return sum(good) / len(good)


@pytest.mark.parametrize("number", [pytest.param(0, marks=NEEDS_CGROUP)])
def test_ray_actor_grows_until_it_is_killed(tmp_path: Path, number: int) -> None:
    """The forecast of the kill is right from half-way on, and the verdict names kernel, actor, phase and cause."""
    pytest.importorskip("ray", reason="needs Ray (make test installs it)")
    pytest.importorskip("omegaconf", reason="the lab needs omegaconf (make test installs it)")
    from trainer.lab.place import cache_programs

    home, folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp")), tmp_path / "run"
    program = tmp_path / "train.py"
    program.write_text(RAY_HOG)
    cache_programs()  # else the kernel may find something to take back for minutes
    with limited(f"watch-ray-{number}", RAY_LIMIT_BYTES) as cgroup:
        done = watch(
            folder,
            "--",
            *ENTER,
            cgroup,
            sys.executable,
            program,
            RAY_memory_monitor_refresh_ms="0",
            RAY_TMPDIR=str(home),
        )
    shutil.rmtree(home, ignore_errors=True)
    incident, told = analyze([str(folder)]), forecasts(read_trace(folder))
    death = death_of(incident)
    assert (done.returncode != 0, len(told) > 5, hit_ratio(told) >= 0.95) == (True, True, True), told
    assert (death.killer, death.victim.role, death.phase) == ("kernel-oom-cgroup", "actor", "rollout")
    assert (
        incident.verdict,
        incident.best is not None and incident.best.cause in ("host-leak", "host-container-limit"),
    ) == ("cause", True)


CLUSTER = """
import sys
from ray._private import ray_constants
from ray.cluster_utils import Cluster
wish = {"num_cpus": 1, "object_store_memory": 80 << 20, "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=wish)
cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
last = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
print("cluster", cluster.address, last.all_processes[ray_constants.PROCESS_TYPE_RAYLET][0].process.pid, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""


@pytest.fixture
def cluster() -> Iterator[tuple[str, int]]:
    """A Ray cluster of three raylets on this machine: its address, and the pid of the last raylet."""
    pytest.importorskip("ray", reason="needs Ray (make test installs it)")
    home = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", CLUSTER],
        env=environment(RAY_TMPDIR=str(home)),
        stdin=pipe,
        stdout=pipe,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    words = next(line.split() for line in process.stdout if line.startswith("cluster "))
    yield words[1], int(words[2])
    process.communicate("\n", timeout=PLENTY_S)
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    shutil.rmtree(home, ignore_errors=True)


def sampled(folder: Path) -> int:
    """How many nodes of a cluster's run have come home with a sample."""
    nodes = [path.parent for path in folder.glob("nodes/*/000001.trace")]
    return sum(bool(read_node(node).times_ns) for node in nodes)


def lost_s(folder: Path) -> float | None:
    """When the collector lost a node, Unix seconds."""
    event = event_of(folder, "node.lost")
    return None if event is None else event["wall_ns"] / 1e9


def test_ray_cluster(tmp_path: Path, cluster: tuple[str, int], start: Callable[..., subprocess.Popen[bytes]]) -> None:
    """Each node has a trace, and of a raylet that is killed its end and the loss of the node are on record."""
    address, raylet = cluster
    folder = tmp_path / "run"
    process = start(folder, "--interval", "500ms", "--ray", address)
    wait_for(lambda: sampled(folder) == 3)
    os.kill(raylet, signal.SIGKILL)
    killed_s = time.time()
    found_s = wait_for(lambda: lost_s(folder), 45)
    process.terminate()
    _, errors = process.communicate(timeout=PLENTY_S)
    trace = read_trace(folder)
    gone = [event["pid"] for event in trace.events if event["kind"] == "process.gone" and event["name"] == "raylet"]
    assert (len([node for node in trace.nodes if node.times_ns]), raylet in gone) == (3, True), errors.decode()
    assert (found_s is not None and found_s - killed_s <= 40, process.returncode) == (True, 1), errors.decode()
