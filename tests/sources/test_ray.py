"""Ray's names from outside: raylets by their command lines, workers by the first lines of their logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.sources.procfs import parse_cmdline, read_file
from rlhfdoctor.sources.ray import RayNode, SessionNames, find_node
from tests.fake_tree import FakeTree

SESSION = "/tmp/ray/session_2026-03-01_10-00-00_123456_77"
PACKAGE = "/opt/venv/lib/python3.11/site-packages/ray"
WORKER = (
    f"/opt/venv/bin/python {PACKAGE}/_private/workers/setup_worker.py {PACKAGE}/_private/workers/default_worker.py "
    f"--node-ip-address=10.0.0.9 --node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER --object-store-name={SESSION}/sockets/plasma_store "
    f"--raylet-name={SESSION}/sockets/raylet --redis-address=None --metrics-agent-port=61234 --logging-rotate-bytes=536870912 "
    f"--logging-rotate-backup-count=5 --runtime-env-agent-port=58311 --gcs-address=10.0.0.4:6379 --session-name={SESSION[9:]} "
    f"--temp-dir=/tmp/other --webui=127.0.0.1:8265 --cluster-id={'2a' * 28} RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER"
)
JAVA = (
    f"/opt/venv/bin/python {PACKAGE}/_private/workers/setup_worker.py -Dray.address=10.0.0.4:6379 "
    f"-Dray.raylet.node-manager-port=RAY_NODE_MANAGER_PORT_PLACEHOLDER -Dray.object-store.socket-name={SESSION}/sockets/plasma_store "
    f"-Dray.raylet.socket-name={SESSION}/sockets/raylet -Dray.redis.password= -Dray.node-ip=10.0.0.4 -Dray.home={PACKAGE}/../.. "
    f"-Dray.logging.dir={SESSION}/logs -Dray.session-dir={SESSION} RAY_WORKER_DYNAMIC_OPTION_PLACEHOLDER "
    "io.ray.runtime.runner.worker.DefaultWorker"
)
AGENT = f"/opt/venv/bin/python -u {PACKAGE}/dashboard/agent.py --node-ip-address=10.0.0.9 --session-dir=/tmp/other --temp-dir=/tmp/other"


def raylet(node_id: bool) -> list[str]:
    """The arguments of a raylet; from 2.44 or so on it is reported its id."""
    return [
        f"{PACKAGE}/core/src/ray/raylet/raylet",
        f"--raylet_socket_name={SESSION}/sockets/raylet",
        f"--store_socket_name={SESSION}/sockets/plasma_store",
        "--object_manager_port=0",
        "--min_worker_port=10002",
        "--max_worker_port=19999",
        "--node_manager_port=0",
        *([f"--node_id={'1b' * 28}"] if node_id else []),
        "--node_ip_address=10.0.0.4",
        "--maximum_startup_concurrency=8",
        "--static_resource_list=node:10.0.0.4,1.0,CPU,8,memory,25009917952,object_store_memory,83886080",
        f"--python_worker_command={WORKER}",
        f"--java_worker_command={JAVA}",
        "--cpp_worker_command=",
        f"--native_library_path={PACKAGE}/cpp/lib",
        "--temp_dir=/tmp/ray",
        f"--session_dir={SESSION}",
        f"--log_dir={SESSION}/logs",
        f"--resource_dir={SESSION}/runtime_resources",
        "--metrics-agent-port=61234",
        "--metrics_export_port=52011",
        "--object_store_memory=83886080",
        "--plasma_directory=/dev/shm",
        "--ray-debugger-external=0",
        "--gcs-address=10.0.0.4:6379",
        f"--session-name={SESSION[9:]}",
        "--labels=",
        "--head",
        f"--agent_command={AGENT}",
    ]


NODE = RayNode(pid=7, session=SESSION, address="10.0.0.4", store_bytes=83886080)
COMMANDS = {
    "2.9": (" ".join(raylet(False)), NODE),
    "newer": (" ".join(raylet(True)), NODE),
    "flags and values apart": (
        f"/x/raylet --session_dir {SESSION} --node_ip_address 10.0.0.4 --object_store_memory 83886080",
        NODE,
    ),
    "bare name": (
        "raylet --node_ip_address=10.0.0.4",
        RayNode(pid=7, session=None, address="10.0.0.4", store_bytes=None),
    ),
    "no flags": ("/x/raylet", RayNode(pid=7, session=None, address=None, store_bytes=None)),
    "empty flags": (
        "/x/raylet --session_dir= --node_ip_address=::1",
        RayNode(pid=7, session=None, address="::1", store_bytes=None),
    ),
    "damaged size": (
        "/x/raylet --object_store_memory=8e7",
        RayNode(pid=7, session=None, address=None, store_bytes=None),
    ),
    "IPv6": ("/x/raylet --node_ip_address=fd00::4", RayNode(pid=7, session=None, address="fd00::4", store_bytes=None)),
}


@pytest.mark.parametrize(("command", "expected"), COMMANDS.values(), ids=COMMANDS)
def test_raylet(command: str, expected: RayNode) -> None:
    """A raylet tells its session, address and store; flags of the workers that it starts are not its own."""
    assert expected == find_node(7, command)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "python raylet",
        "/x/raylet-exporter --session_dir=/tmp/ray/s",
        "/x/gcs_server --session_dir=/tmp/ray/s",
        f"{WORKER}",
        "tail -f /tmp/ray/session_latest/logs/raylet",
        "/x/raylet/plasma --session_dir=/tmp/ray/s",
        "ray::IDLE",
        " ",
    ],
)
def test_no_raylet(command: str) -> None:
    """Programs that only mention a raylet are none."""
    assert find_node(7, command) is None


@pytest.mark.parametrize("node_id", [False, True], ids=["2.9", "newer"])
def test_raylet_of_the_machine(tmp_path: Path, node_id: bool) -> None:
    """A raylet's command line is read to its end, where most of its flags are."""
    tree = FakeTree(tmp_path)
    path = tree.write("proc/7/cmdline", "\0".join(raylet(node_id)) + "\0")
    data = read_file(path) or b""
    assert (find_node(7, parse_cmdline(data, 1 << 20)), len(parse_cmdline(data))) == (NODE, 2000)


ACTOR = ":job_id:01000000\n:actor_name:ActorModelRayActor\n"
HEX = "3f" * 28
WORKERS = {
    "actor": (f"worker-{HEX}-01000000-4711.out", ACTOR, {4711: "ActorModelRayActor"}),
    "actor with its own name": (
        f"worker-{HEX}-01000000-4711.out",
        ":job_id:01000000\n:actor_name:my actor (0)\n",
        {4711: "my actor (0)"},
    ),
    "task": (f"worker-{HEX}-02000000-12.out", ":job_id:02000000\n:task_name:main_task\n", {12: "main_task"}),
    "task, then actor": (
        f"worker-{HEX}-02000000-12.out",
        ":job_id:02000000\n:task_name:setup\n:actor_name:WorkerDict\n",
        {12: "WorkerDict"},
    ),
    "started before its job": (f"worker-{HEX}-ffffffff-5.out", ACTOR, {5: "ActorModelRayActor"}),
    "output before": (f"worker-{HEX}-01000000-5.out", "loading ...\n" + ACTOR + "more\n", {5: "ActorModelRayActor"}),
    "Windows line ends": (f"worker-{HEX}-01000000-5.out", ACTOR.replace("\n", "\r\n"), {5: "ActorModelRayActor"}),
    "no UTF-8": (f"worker-{HEX}-01000000-5.out", b":actor_name:a\xff\n", {5: "a\ufffd"}),
    "idle": (f"worker-{HEX}-01000000-5.out", ":job_id:01000000\n", {}),
    "empty": (f"worker-{HEX}-01000000-5.out", "", {}),
    "empty name": (f"worker-{HEX}-01000000-5.out", ":actor_name:\n", {}),
    "garbage": (f"worker-{HEX}-01000000-5.out", b"\0\xff\xfe", {}),
    "mentioned within a line": (f"worker-{HEX}-01000000-5.out", "got :actor_name:X\n", {}),
    "standard error": (f"worker-{HEX}-01000000-5.err", ACTOR, {}),
    "no pid": (f"worker-{HEX}-01000000-x.out", ACTOR, {}),
    "another file": ("raylet.out", ACTOR, {}),
}


@pytest.mark.parametrize(("file", "content", "expected"), WORKERS.values(), ids=WORKERS)
def test_worker(tmp_path: Path, file: str, content: str | bytes, expected: dict[int, str]) -> None:
    """A worker's name is the actor's, or else its task's, as its first lines tell; the pid is in the file's name."""
    tree = FakeTree(tmp_path)
    tree.write(f"{SESSION[1:]}/logs/{file}", content)
    assert expected == SessionNames(SESSION, tree.root).read()


def test_name_that_comes_later(tmp_path: Path) -> None:
    """A worker without a name is asked again, a task's worker may become an actor, and an actor's name stays."""
    tree = FakeTree(tmp_path)
    names, logs = SessionNames(SESSION, tree.root), f"{SESSION[1:]}/logs"
    assert names.read() == {}
    tree.write(f"{logs}/worker-{HEX}-ffffffff-5.out", ":job_id:01000000\n")
    tree.write(f"{logs}/worker-{HEX}-ffffffff-6.out", ":job_id:01000000\n:task_name:setup\n")
    first = dict(names.read())
    tree.write(f"{logs}/worker-{HEX}-ffffffff-5.out", ACTOR)
    tree.write(f"{logs}/worker-{HEX}-ffffffff-6.out", ":task_name:setup\n:actor_name:CriticModelRayActor\n")
    second = dict(names.read())
    tree.write(f"{logs}/worker-{HEX}-ffffffff-5.out", ACTOR.replace("ActorModel", "Other"))
    assert (first, second) == ({6: "setup"}, {5: "ActorModelRayActor", 6: "CriticModelRayActor"})
    assert second == names.read()


def test_names_outlive_the_folder(tmp_path: Path) -> None:
    """What was known stays known when the session's logs are gone."""
    tree = FakeTree(tmp_path)
    path = Path(tree.write(f"{SESSION[1:]}/logs/worker-{HEX}-01000000-5.out", ACTOR))
    names = SessionNames(SESSION, tree.root)
    names.read()
    path.unlink()
    path.parent.rmdir()
    assert names.read() == {5: "ActorModelRayActor"}


def test_drivers(tmp_path: Path) -> None:
    """Drivers are the pids of their own logs; core workers and damaged names are none."""
    tree = FakeTree(tmp_path)
    tree.add_folder(
        f"{SESSION[1:]}/logs",
        {
            f"python-core-driver-01000000{'f' * 48}_1177.log": "",
            f"python-core-driver-02000000{'f' * 48}_1180.log": "",
            f"python-core-worker-{HEX}_1323.log": "",
            "python-core-driver-xyz_5.log": "",
            f"python-core-driver-{HEX}_6.log.1": "",
            f"python-core-driver-{HEX}_.log": "",
        },
    )
    names = SessionNames(SESSION, tree.root)
    assert ({}, {1177, 1180}) == (names.read(), names.drivers)


def test_file_that_did_not_change_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file without a name is opened again only when it changed."""
    tree, opened = FakeTree(tmp_path), []
    logs = f"{SESSION[1:]}/logs"
    for pid in range(20):
        tree.write(f"{logs}/worker-{HEX}-ffffffff-{pid}.out", ":job_id:01000000\n")
    monkeypatch.setattr("rlhfdoctor.sources.ray.read_bytes", lambda path, *_, **__: opened.append(path) or ACTOR.encode()[:16])
    names = SessionNames(SESSION, tree.root)
    counts = []
    for _ in range(3):
        names.read()
        counts.append(len(opened))
    tree.write(f"{logs}/worker-{HEX}-ffffffff-7.out", ":job_id:01000000\nmore\n")
    names.read()
    assert (counts, len(opened)) == ([20, 20, 20], 21)


def test_very_many_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a session with more logs than any has only so many are looked at, so many read at a look, and names are short."""
    monkeypatch.setattr("rlhfdoctor.sources.ray.MOST_LOGS", 60)
    monkeypatch.setattr("rlhfdoctor.sources.ray._MOST_BYTES", 40 << 12)
    tree = FakeTree(tmp_path)
    for pid in range(100):
        tree.write(f"{SESSION[1:]}/logs/worker-{HEX}-ffffffff-{pid}.out", f":actor_name:{'x' * 999}\n")
    names = SessionNames(SESSION, tree.root)
    found = [len(names.read()) for _ in range(3)]
    assert (found, {len(name) for name in names.read().values()}) == ([40, 60, 60], {200})
