"""`doctor watch` in folders and beside processes that another user has prepared."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlhfdoctor.errors import UsageError
from rlhfdoctor.record import daemon
from rlhfdoctor.record.background import SlowLane
from rlhfdoctor.record.recorder_config import RecorderConfig, pass_config, read_config, take_config, write_config
from rlhfdoctor.record.run_folder import make_folder
from rlhfdoctor.record.start import describe_run, start_recorder
from rlhfdoctor.record.surroundings import keep_configs, our_surroundings
from rlhfdoctor.sources.owners import owners_of
from rlhfdoctor.sources.vllm import parse_metrics, read_metrics
from tests.attacks.conftest import Doctor
from tests.attacks.run import START, environment

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: processes and files of another user")
OTHER_UID = 65534
SECRET = "only-root-may-read-this"
MODULES = (
    "json",
    "select",
    "re",
    "array",
    "ast",
    "base64",
    "bisect",
    "collections",
    "contextlib",
    "ctypes",
    "dataclasses",
    "datetime",
    "enum",
    "fcntl",
    "functools",
    "glob",
    "hashlib",
    "heapq",
    "itertools",
    "io",
    "math",
    "os",
    "posixpath",
    "resource",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "struct",
    "subprocess",
    "tempfile",
    "threading",
    "traceback",
    "types",
    "typing",
    "zlib",
    "zstandard",
    "msgspec",
    "yaml",
    "click",
)
"""Modules that a recorder may import, or what it imports."""


@pytest.mark.parametrize("package", [False, True], ids=["modules", "package"])
def test_planted_modules(tmp_path: Path, attack: Doctor, package: bool) -> None:
    """Row 2: nothing of the folder in which `doctor watch` is called is imported."""
    folder, marker, out = tmp_path / "shared", tmp_path / "ran", tmp_path / "out"
    folder.mkdir()
    evil = f"open({str(marker)!r}, 'a').write(__name__ + '\\n')\nraise ImportError('planted')\n"
    if package:
        (folder / "rlhfdoctor" / "record").mkdir(parents=True)
        for name in ("__init__.py", "record/__init__.py", "record/recorder.py"):
            (folder / "rlhfdoctor" / name).write_text(evil)
    else:
        for name in MODULES:
            (folder / f"{name}.py").write_text(evil)
    done = attack("watch", "--no-view", "--out", out, "--", "/bin/true", cwd=folder)
    assert not marker.exists(), marker.read_text()
    done.check((0,))
    assert list(out.glob("*.trace"))


def test_private_files_stay_private(tmp_path: Path, attack: Doctor) -> None:
    """Row 13: the folder of a run is 0700 and its files 0600: command line, logs, trace, copies of configuration."""
    config, out = tmp_path / "train.yaml", tmp_path / "runs" / "out"
    config.write_text("trainer: {total_epochs: 1}\n")
    config.chmod(0o600)
    words = ("/bin/sh", "-c", "echo hello; sleep 1", "x", f"--config={config}", str(config))
    attack("watch", "--no-view", "--out", out, "--", *words).check((0,))
    assert list(out.glob("config/*.yaml")), "the configuration was copied"
    assert [path for path in (out / "logs").iterdir() if "hello" in path.read_text()], "so was the job's output"
    modes = {str(path.relative_to(out)): oct(path.stat().st_mode & 0o777) for path in (out, *out.rglob("*"))}
    assert {name for name, mode in modes.items() if int(mode, 8) & 0o077} == set()


@contextlib.contextmanager
def raylet(session: Path, store: str = "1000000", seconds: int = 4) -> Iterator[int]:
    """A process of another user that calls itself raylet and names a folder of its own as Ray's session."""
    flags = [f"--session_dir={session}", f"--object_store_memory={store}"]
    words = ["/opt/ray/raylet", "-c", f"sleep {seconds}; :", "raylet", *flags]
    user = {"user": OTHER_UID, "group": OTHER_UID, "extra_groups": []} if os.geteuid() == 0 else {}
    process = subprocess.Popen(words, executable="/bin/bash", cwd="/", start_new_session=True, **user)  # type: ignore[call-overload]
    try:
        yield int(process.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """The folder of a Ray session, with a log that is right."""
    folder = tmp_path / "session"
    (folder / "logs").mkdir(parents=True)
    (folder / "logs" / "gcs_server.out").write_text("a log of the session\n")
    return folder


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A folder that only root may read, with files named like Ray's logs."""
    folder = tmp_path / "root"
    folder.mkdir(0o700)
    for name in ("worker-1-01-7.out", "raylet.out", "secret.txt"):
        (folder / name).write_text(f"{SECRET}\n" * 3)
        (folder / name).chmod(0o600)
    return folder


def owned(folder: Path) -> None:
    """Gives a session to the other user, links themselves and not where they lead."""
    if os.geteuid() == 0:
        for path in (folder, *(() if folder.is_symlink() else folder.rglob("*"))):
            os.chown(path, OTHER_UID, OTHER_UID, follow_symlinks=False)


def texts(folder: Path) -> str:
    """All that a recording holds."""
    return "\n".join(path.read_bytes().decode("utf-8", "replace") for path in folder.rglob("*") if path.is_file())


def link_of_a_worker(session: Path, secret: Path) -> None:
    (session / "logs" / "worker-abc-01-7.log").symlink_to(secret / "secret.txt")


def link_of_output(session: Path, secret: Path) -> None:
    (session / "logs" / "raylet.out").symlink_to(secret / "secret.txt")


def link_of_the_folder(session: Path, secret: Path) -> None:
    shutil.rmtree(session / "logs")
    (session / "logs").symlink_to(secret)


def link_of_the_session(session: Path, secret: Path) -> None:
    (secret / "logs").mkdir()
    (secret / "raylet.out").rename(secret / "logs" / "raylet.out")
    shutil.rmtree(session)
    session.symlink_to(secret)


def hard_link(session: Path, secret: Path) -> None:
    (session / "logs" / "worker-abc-01-7.log").hardlink_to(secret / "secret.txt")


LINKS = (link_of_a_worker, link_of_output, link_of_the_folder, link_of_the_session, hard_link)


@AS_ROOT
@pytest.mark.parametrize("plant", LINKS, ids=lambda plant: plant.__name__)
def test_links_of_a_session(
    tmp_path: Path, session: Path, secret: Path, attack: Doctor, plant: Callable[[Path, Path], None]
) -> None:
    """Row 15: of a session that a process names, only its owner's files are copied, and no link is followed."""
    plant(session, secret)
    if plant is hard_link:
        for path in (session, session / "logs", session / "logs" / "gcs_server.out"):
            os.chown(path, OTHER_UID, OTHER_UID)
    else:
        owned(session)
    out = tmp_path / "out"
    with raylet(session) as pid:
        attack("watch", "--no-view", "--interval", "100ms", "--out", out, "--pid", str(pid)).check((0, 1, 3))
    held = texts(out)
    assert SECRET not in held
    if plant in (link_of_a_worker, link_of_output, hard_link):
        assert "a log of the session" in held, "what is the session's own is copied"


@pytest.mark.parametrize("name", ["raylet.out", "worker-abc-01000000-7.out", "worker-abc-01000000-².out"])
def test_pipe_in_a_session(tmp_path: Path, session: Path, attack: Doctor, name: str) -> None:
    """Row 16: a pipe in the place of a log neither freezes the recorder nor keeps it from ending."""
    os.mkfifo(session / "logs" / name)
    owned(session)
    out = tmp_path / "out"
    with raylet(session) as pid:
        words = ("watch", "--no-view", "--interval", "100ms", "--out", out, "--pid", str(pid))
        done = attack(*words, wait_s=40.0).check((0, 1, 3))
    assert "a log of the session" in texts(out), done.stderr


def test_odd_digits_in_a_session(tmp_path: Path, session: Path, attack: Doctor) -> None:
    """Rows 32 to 42: `²` in a raylet's command line or a log's name is no number, and no fault of the recorder."""
    (session / "logs" / "worker-abc-01000000-².out").write_text(":actor_name:Actor\n")
    owned(session)
    out = tmp_path / "out"
    with raylet(session, "²") as pid:
        attack("watch", "--no-view", "--interval", "100ms", "--out", out, "--pid", str(pid)).check((0, 1, 3))
    log = out / "recorder.log"
    assert not log.exists() or "Traceback" not in log.read_text()
    assert "a log of the session" in texts(out)


FILES = ("run.json.new", "command.sh", "versions.txt", "recorder.log")


@pytest.mark.parametrize("dangling", [False, True], ids=["there", "dangling"])
@pytest.mark.parametrize("name", FILES)
def test_planted_link_in_the_folder(tmp_path: Path, attack: Doctor, name: str, dangling: bool) -> None:
    """Row 27: a link in the folder of `--out` is not written through; the folder may be refused."""
    out, victim = tmp_path / "out", tmp_path / "victim"
    out.mkdir()
    if not dangling:
        victim.write_text(SECRET)
    (out / name).symlink_to(victim)
    attack("watch", "--no-view", "--out", out, "--", sys.executable, "-c", "pass").check((0, 2))
    assert victim.read_text() == SECRET if not dangling else not victim.exists()


@pytest.mark.parametrize("name", ["logs", "config"])
def test_planted_folder(tmp_path: Path, attack: Doctor, name: str) -> None:
    """Row 27: a link in the place of a folder of the run is not written through."""
    out, victim, config = tmp_path / "out", tmp_path / "victim", tmp_path / "a.yaml"
    out.mkdir()
    victim.mkdir()
    config.write_text("a: 1\n")
    (out / name).symlink_to(victim)
    attack("watch", "--no-view", "--out", out, "--", "/bin/sh", "-c", "echo hi", str(config)).check((0, 2))
    assert list(victim.iterdir()) == []


def children(pid: int) -> list[int]:
    """Of a process, at this moment."""
    with contextlib.suppress(OSError):
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def test_recorder_killed_at_its_start(tmp_path: Path, home: Path) -> None:
    """Row 31: where the recorder is killed in its first moments, the message says so, or another one takes its place."""
    out = tmp_path / "out"
    words = [sys.executable, "-c", START, "watch", "--no-view", "--out", str(out), "--", "/bin/true"]
    process = subprocess.Popen(words, cwd=home, env=environment(home), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    killed = 0
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline and not killed:
        for pid in children(process.pid):
            with contextlib.suppress(OSError):
                if str(out).encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and not list(out.glob("*.trace")):
                    os.kill(pid, signal.SIGKILL)
                    killed = pid
    assert killed, "no recorder was seen"
    said = process.communicate(timeout=60)[0].decode()
    assert process.returncode in (0, 2), said
    assert "it said nothing" not in said
    assert process.returncode == 0 or "kill" in said.lower(), said


@pytest.fixture
def small_disk(tmp_path: Path, home: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A disk of so many MiB, gone before the rest of the test's files."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={request.param}m"
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", size, "none", str(folder)], check=False, capture_output=True)
    if done.returncode:
        pytest.skip("needs root: a disk of its own")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


PRINTS = """
import os, pathlib, sys, time
folder, end, mib = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
print("a first line", flush=True)
if mib > 4:
    time.sleep(1.5)
    with open(folder / "filler", "wb", buffering=0) as filler:
        try:
            while filler.write(bytes(1 << 16)):
                pass
        except OSError:
            pass
for _ in range(mib):
    for _ in range(1000):
        print("x" * 1000, flush=True)
    time.sleep(0.25 if mib > 4 else 0)
end.write_text("reached")
print("a last line", flush=True)
"""


@AS_ROOT
@pytest.mark.parametrize("small_disk", [1, 100], indirect=True)
def test_job_outlives_a_full_disk(tmp_path: Path, small_disk: Path, attack: Doctor) -> None:
    """Rows 32 to 42: where the disk of its log is full, a job goes on, and ends with its own exit status.

    On the larger disk the job itself takes what is free, then prints 40 MB.
    """
    end, out, has_log = tmp_path / "end", small_disk / "out", os.statvfs(small_disk).f_blocks > 1000
    words = (
        "watch",
        "--no-view",
        "--out",
        out,
        "--",
        sys.executable,
        "-c",
        PRINTS,
        small_disk,
        end,
        "40" if has_log else "4",
    )
    done = attack(*words).check((0,))
    assert end.read_text() == "reached"
    if not has_log:
        assert ("a last line" in done.stdout, list((out / "logs").iterdir())) == (True, [])
        return
    (small_disk / "filler").unlink()
    log = out / "logs" / "job.out.log"
    text = log.read_bytes().replace(b"\0", b"")
    assert (text.startswith(b"a first line\n"), text.endswith(b"a last line\n"), log.stat().st_size > 40_000_000) == (
        True,
        True,
        True,
    )
    assert "middle of" in done.stderr
    again = attack("analyze", "--format", "json", out).check((0, 1, 3))
    assert any("given back on a full disk" in str(gap) for gap in again.report["gaps"]), again.report["gaps"]


@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_marks_of_a_prepared_folder(tmp_path: Path, kind: str) -> None:
    """A second attack: a trainer's mark neither waits for a pipe nor is written through a link."""
    victim, marks = tmp_path / "victim", tmp_path / "marks"
    marks.mkdir()
    victim.write_text(SECRET)
    code = (
        "import os, sys; from pathlib import Path; from rlhfdoctor import marks; "
        "path = Path(os.environ['RLHFDOCTOR_MARKS']) / f'{os.getpid()}.jsonl'; "
        "os.mkfifo(path) if sys.argv[1] == 'pipe' else path.symlink_to(sys.argv[2]); "
        "marks.step(1); marks.step(2); print('went on')"
    )
    words = [sys.executable, "-c", code, kind, str(victim)]
    done = subprocess.run(words, env={**os.environ, "RLHFDOCTOR_MARKS": str(marks)}, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, victim.read_text()) == ("went on\n", "", SECRET)


@AS_ROOT
@pytest.mark.parametrize("owner", [0, OTHER_UID], ids=["root's", "its own"])
def test_configuration_of_another_user(tmp_path: Path, attack: Doctor, owner: int) -> None:
    """A second attack: root who attaches to a process keeps only its owner's files of those that its command names."""
    named, out = tmp_path / "named.yaml", tmp_path / "out"
    named.write_text(f"optimizer: {SECRET}\n")
    named.chmod(0o600)
    os.chown(named, owner, owner)
    words = ["/bin/sh", "-c", "sleep 4; :", str(named)]
    process = subprocess.Popen(words, user=OTHER_UID, group=OTHER_UID, extra_groups=[], cwd="/")
    try:
        attack("watch", "--no-view", "--interval", "100ms", "--out", out, "--pid", str(process.pid)).check((0, 1, 3))
    finally:
        process.kill()
        process.wait()
    assert (SECRET in texts(out)) == (owner == OTHER_UID)


@pytest.mark.parametrize("place", ["run", "logs"])
def test_folder_of_a_run_that_becomes_a_link(tmp_path: Path, place: str) -> None:
    """A third attack: in a folder of another user's, a link takes the place of the run's folder, or of one in it."""
    victim, runs = tmp_path / "profile.d", tmp_path / "runs"
    victim.mkdir()
    config = RecorderConfig(name="x", command=("/bin/echo", "hi"), stdout=str(runs / "a" / "logs" / "job.log"))
    folder = make_folder(str(runs / "a"), "x")
    moved = folder if place == "run" else folder / "logs"
    moved.rename(tmp_path / "moved")
    moved.symlink_to(victim)
    if place == "run":
        with pytest.raises(UsageError, match="link"):
            describe_run(folder, config, argv=["/tmp/evil"])
        with pytest.raises(UsageError, match="link"):
            start_recorder(folder, config)
    with pytest.raises(OSError, match="link"):
        daemon.launch(config)
    assert list(victim.iterdir()) == []


def test_log_of_a_job_that_is_a_link(tmp_path: Path) -> None:
    """A third attack: a link in the place of the job's log is not written through."""
    victim, log = tmp_path / "victim", tmp_path / "job.log"
    victim.write_text(SECRET)
    log.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic"):
        daemon.launch(RecorderConfig(name="x", command=("/bin/echo", "hi"), stdout=str(log)))
    assert victim.read_text() == SECRET


def test_very_many_configurations(tmp_path: Path) -> None:
    """A third attack: a command line that names very many files, each of them often, costs neither the disk nor the start."""
    (tmp_path / "run").mkdir()
    names = [str(tmp_path / f"{number}.sh") for number in range(300)]
    for name in names:
        Path(name).write_bytes(b"x")
    kept = keep_configs(tmp_path / "run", names * 50, our_surroundings())
    assert (len(kept), len(os.listdir(tmp_path / "run" / "config"))) == (32, 32)


def test_configuration_with_a_long_name(tmp_path: Path) -> None:
    """A third attack: a file whose name is as long as names may be is kept, too."""
    (tmp_path / "run").mkdir()
    named = tmp_path / f"{'长' * 83}.yaml"
    named.write_text("a: 1\n")
    [kept] = keep_configs(tmp_path / "run", [str(named)], our_surroundings())
    assert (kept["path"], (tmp_path / "run" / kept["copy"]).read_text()) == (str(named), "a: 1\n")


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 4000000\r\n\r\n"], ids=["header", "body"])
def test_server_that_never_ends_its_answer(begin: bytes) -> None:
    """A third attack: a byte now and then does not hold up what the recorder reads beside (GPUs, /dev/shm)."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError), listener.accept()[0] as client:
            client.sendall(begin)
            while not over.wait(0.02):
                client.sendall(b"v")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,), daemon=True)
        server.start()
        reader = threading.Thread(target=read_metrics, args=("127.0.0.1", listener.getsockname()[1], 0.2), daemon=True)
        reader.start()
        reader.join(30)
        ended = not reader.is_alive()
        over.set()
        server.join(30)
    assert ended


@AS_ROOT
@pytest.mark.parametrize("is_moved", [False, True], ids=["without a right to it", "a folder that became a link"])
def test_output_of_a_set_user_id_program(tmp_path: Path, attack: Doctor, is_moved: bool) -> None:
    """Its effective user is root; who started it and chose its output is not, and a descriptor of O_PATH names any file."""
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o755)
    secret, theirs, program, out = tmp_path / "secret", tmp_path / "theirs", tmp_path / "program", tmp_path / "out"
    secret.mkdir()
    theirs.mkdir()
    os.chown(theirs, OTHER_UID, OTHER_UID)
    (secret / "x").write_text(f"{SECRET}\n")
    (secret / "x").chmod(0o600)
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    folder = theirs / "run" if is_moved else secret
    if is_moved:
        folder.mkdir()
    output = os.open(folder / "x", os.O_WRONLY | os.O_CREAT if is_moved else os.O_PATH, 0o600)
    os.chown(folder / "x", *((OTHER_UID, OTHER_UID) if is_moved else (0, 0)))
    process = subprocess.Popen(
        [program, "8"], stdout=output, user=OTHER_UID, group=OTHER_UID, extra_groups=[], cwd="/"
    )
    os.close(output)
    try:
        moving = threading.Timer(3 if is_moved else 0, _become_link, (folder, secret) if is_moved else (None, None))
        moving.start()
        attack("watch", "--no-view", "--interval", "100ms", "--out", out, "--pid", str(process.pid)).check((0, 1, 3))
        moving.join()
    finally:
        process.kill()
        process.wait()
    assert SECRET not in texts(out)


def _become_link(folder: Path | None, leads_to: Path | None) -> None:
    if folder is not None and leads_to is not None:
        folder.rename(folder.with_name("old"))
        folder.symlink_to(leads_to)


@AS_ROOT
def test_owner_of_a_set_user_id_program(tmp_path: Path) -> None:
    """Its effective user is root; who started it, and chose what it was given, is not."""
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):
        folder.chmod(0o755)
    program = tmp_path / "program"
    shutil.copy("/bin/sleep", program)
    program.chmod(0o4755)
    with subprocess.Popen([program, "60"], user=OTHER_UID, group=OTHER_UID, extra_groups=[], cwd="/") as process:
        try:
            assert owners_of(process.pid) == (OTHER_UID,)
        finally:
            process.kill()


def test_page_of_metrics_that_is_slow_to_read() -> None:
    """A megabyte of lines that begin as vLLM's do and never end: linear, and nothing found."""
    from tests.expressions import grows

    def cpu_s(count: int) -> float:
        start = time.process_time()
        assert parse_metrics("vllm:a{\n" * count) is None
        return time.process_time() - start

    assert not grows(lambda: cpu_s(1 << 14), lambda: cpu_s(1 << 16), calm_s=0.01)


def test_slow_lane_outlives_a_fault() -> None:
    """A source that raises whatever it likes costs its own figures, not those of the others."""
    lane = SlowLane()
    lane.add("bad", 1.0, lambda: int(float("inf")))
    lane.add("good", 1.0, lambda: 7)
    lane.step()
    assert (lane.take("bad"), lane.take("good"), [str(gap.what) for gap in lane.gaps()]) == (None, 7, ["bad"])


def test_orders_that_another_user_wrote(tmp_path: Path) -> None:
    """What stands in the folder of a run is never what the recorder runs: its orders come by a descriptor."""
    folder = make_folder(str(tmp_path / "run"), "x")
    started = tmp_path / "started"
    orders = RecorderConfig(name="x", command=("/bin/sh", "-c", f"touch {started}; sleep 1"), stdout=str(folder / "logs" / "job.log"))
    handle = pass_config(orders)
    write_config(str(folder), dataclasses.replace(orders, command=("touch", str(tmp_path / "evil"))))
    assert take_config(handle) == orders
    recorder = start_recorder(folder, orders)
    (folder / "orders.json").write_text((folder / "orders.json").read_text().replace("started", "evil"))
    assert recorder.wait(60) == 0
    assert (started.exists(), (tmp_path / "evil").exists()) == (True, False)
    source = (Path(daemon.__file__).parent / "recorder.py").read_text()
    assert "read_config" not in source and "take_config" in source


def test_orders_keep_no_secret(tmp_path: Path) -> None:
    """What is written for who attaches has the command without its secrets, from the first moment."""
    folder = make_folder(str(tmp_path / "run"), "x")
    write_config(str(folder), RecorderConfig(name="x", command=("train", "--hf_token=hf_abcdefghijklmnop")))
    assert "hf_abc" not in (folder / "orders.json").read_text() and read_config(str(folder)).command[0] == "train"
