"""Ray's messages from 0.6 to 2.60: memory kills, tables, vanished workers and nodes, the object store."""

from __future__ import annotations

import pytest

from rlhfdoctor.logs.ray import read_top
from rlhfdoctor.types import Value
from tests.build import fields_of, read_kind, read_log

NODE = "09d6" * 14
TASK = "c8ef" * 12
ACTOR = "dc0d" * 8
WORKER = "75ab" * 14
LEASE = "12ab" * 16
GIB = 1024**3


def gib(text: str) -> int:
    """Bytes of a figure of Ray's, which writes GB and means GiB."""
    return round(float(text) * GIB)


# --- the memory kill ---------------------------------------------------------------------------

V06 = (
    "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node Local is used (15.98 / 16.82 GB). "
    "The top 5 memory consumers are:\n\n"
    "PID\tMEM\tCOMMAND\n4758\t7.3GB\tray_ImpalaTrainer:train()\n4761\t1.02GB\tray_PolicyEvaluator\n"
    "\nIn addition, ~4.24 GB of shared memory is currently being used by the Ray object store.\n"
)
V08 = (
    "ray.exceptions.RayTaskError(RayOutOfMemoryError): ray::_RemoteSingleAgentEnv.step() (pid=2710, ip=10.0.0.1)\n"
    "ray.memory_monitor.RayOutOfMemoryError: More than 95% of the memory on node gpu-7 is used (59.55 / 64.20 GB). "
    "The top 10 memory consumers are:\n\n"
    "PID\tMEM\tCOMMAND\n2710\t2.64GiB\tray::_RemoteSingleAgentEnv.step()\n2170\t0.5GiB\tray::IDLE\n"
)
V20 = (
    "(raylet) [2022-08-29 15:18:33,592 E 30307 30344] (raylet) node_manager.cc:2963: System memory low at node with IP "
    "10.0.0.1. Used memory (23.63GB) / total capacity (33.28GB) (0.709971) exceeds threshold 0.7, killing latest task with "
    f"name the_real_oom_actor:Leaker.__init__ and actor ID {ACTOR} to avoid running out of memory.\n"
)
V21 = (
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
    f"Memory on the node (IP: 10.0.0.1, ID: {NODE}) where the task was running was 32.53GB / 33.28GB (0.977449), which exceeds "
    f"the memory usage threshold of 0.969955. Ray killed this worker (ID: {WORKER}) because it was the most recently scheduled "
    "task; to see more information about memory usage on this node, use `ray logs raylet.out -ip 10.0.0.1`. Refer to the "
    "documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/ray-core/ray-oom-prevention.html. "
    "To adjust the eviction threshold, set the environment variable `RAY_memory_usage_threshold_fraction` when starting Ray. "
    "To disable worker eviction, set the environment variable `RAY_memory_monitor_interval_ms` to zero.\n"
)


def modern(where: str, used: str = "32.62GB / 33.28GB (0.980175)", threshold: str = "0.96", glue: str = " ") -> str:
    """The text of Ray 2.2 to 2.54 with its table."""
    return (
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        f"Memory on the node (IP: 10.0.0.1, ID: {NODE}) where the task ({where}) was running was {used}, which exceeds the "
        f"memory usage threshold of {threshold}. Ray killed this worker (ID: {WORKER}) because it was the most recently scheduled "
        "task; to see more information about memory usage on this node, use `ray logs raylet.out -ip 10.0.0.1`. To see the logs "
        f"of the worker, use `ray logs worker-{WORKER}*out -ip 10.0.0.1.{glue}Top 10 memory users:\n"
        "PID\tMEM(GB)\tCOMMAND\n91085\t24.99\tray::allocate_memory\n2936\t4.10\t\n"
        "77\t0.52\t/usr/bin/python3 -m ray.dashboard.agent --node-ip-address=10.0.0.1 --metrics-export-port=4...\n"
        "78\t0.10\tray::dask:('sort_index-..', 961)\n"
        "Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/. Set max_restarts and "
        "max_task_retries to enable retry when the task crashes due to OOM. To adjust the kill threshold, set the environment "
        "variable `RAY_memory_usage_threshold` when starting Ray. To disable worker killing, set the environment variable "
        "`RAY_memory_monitor_refresh_ms` to zero.\n"
    )


V22_TASK = modern(f"task ID: {TASK}, name=allocate_memory, pid=91085, memory used=24.99GB")
V22_ACTOR = modern(
    f"actor ID: {ACTOR}, name=SimEnv.__init__, pid=5870, memory used=2.22GB", "61.02GB / 64.20GB (0.950553)", "0.95"
)
V22_NO_TASK = modern("task ID: NIL_ID, name=download_batch, pid=115205, memory used=0.18GB")
V22_GLUED = modern(f"task ID: {TASK}, name=f, pid=5, memory used=1.00GB", glue="")
V255 = (
    "(raylet) Task MapBatches failed due to oom. There are infinite oom retries remaining, so the task will be retried. Error: "
    "1 worker(s) were killed due to the node running low on memory. "
    f"Memory on the node (IP: 10.0.0.1, ID: {NODE}) was 28.62GB / 30.00GB (0.954017), which exceeds the memory usage threshold of "
    "0.950000; Object store memory usage: [- objects spillable: 0; - bytes spillable: 0; - objects unsealed: 0; (global lru) "
    "capacity: 9614230732; (global lru) used: 0%]; Ray killed 1 worker(s) based on the killing policy: [(Task: job ID=05000000, "
    f"lease ID={LEASE}, task name=ReadRange->MapBatches(f), required resources={{memory: 8, CPU: 1}}, pid=3471, actual memory "
    f"used=2.85GB, worker ID={WORKER})]; to see more information about memory usage on this node, use `ray logs raylet.out -ip "
    "10.0.0.1`.; Top 10 memory users: PID        MEM(GB) COMMAND, 2936   4.10    , 2938  4.02    ray::ReadRange->MapBatches(f), "
    "3471   2.85    ray::IDLE, 77  0.52 /usr/bin/python3 -m ray.dashboard.agent\n"
)
V260 = (
    f"Memory on the node (IP: 10.0.0.1, ID: {NODE}) was 2.01GB used / 23.54GB limit (0.085223)\n"
    "OOM kill reason: Memory usage 2137358336B exceeded threshold of 2022121088B (8.0% of 25276514304B limit)\n"
)


def kill(ip: str, used: str, total: str, ratio: float, threshold: float | None = None) -> dict[str, Value]:
    """The fields of a memory kill."""
    found: dict[str, Value] = {"ip": ip, "used_bytes": gib(used), "total_bytes": gib(total), "used_ratio": ratio}
    return found if threshold is None else {**found, "threshold_ratio": threshold}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(V21, kill("10.0.0.1", "32.53", "33.28", 0.977449, 0.969955), id="2.1"),
        pytest.param(V22_TASK, kill("10.0.0.1", "32.62", "33.28", 0.980175, 0.96), id="2.2 task"),
        pytest.param(V22_ACTOR, kill("10.0.0.1", "61.02", "64.20", 0.950553, 0.95), id="2.2 actor"),
        pytest.param(V22_NO_TASK, kill("10.0.0.1", "32.62", "33.28", 0.980175, 0.96), id="2.2 no task yet"),
        pytest.param(V22_GLUED, kill("10.0.0.1", "32.62", "33.28", 0.980175, 0.96), id="2.2 glued"),
        pytest.param(V255, kill("10.0.0.1", "28.62", "30.00", 0.954017, 0.95), id="2.55"),
        pytest.param(V260, kill("10.0.0.1", "2.01", "23.54", 0.085223), id="2.60"),
    ],
)
def test_memory_kill(text: str, expected: dict[str, Value]) -> None:
    """Every generation since 2.1 gives the node, the bytes used and in all, and the threshold it names."""
    assert [expected] == fields_of(text, "ray.memory_kill")


@pytest.mark.parametrize(
    "text", [V06, V08, V20, V21, V22_TASK, V255, V260], ids=["0.6", "0.8", "2.0", "2.1", "2.2", "2.55", "2.60"]
)
@pytest.mark.parametrize("engine", ["hyperscan", "re"])
def test_every_generation_is_a_memory_kill(text: str, engine: str) -> None:
    """Each generation has one event that bears the numbers of the kill, in either engine."""
    kinds = {"ray.memory_kill", "ray.memory_kill_old", "ray.memory_error_old"}
    assert sum(event.kind in kinds for event in read_log(text, engine=engine)) == 1


@pytest.mark.parametrize(
    ("text", "node", "used", "total", "share"),
    [(V06, "Local", "15.98", "16.82", 0.95), (V08, "gpu-7", "59.55", "64.20", 0.95)],
    ids=["0.6", "0.8"],
)
def test_error_of_old(text: str, node: str, used: str, total: str, share: float) -> None:
    """Ray 0.6 to 1.x raises in the process; node, bytes and share are read."""
    expected = {"threshold_ratio": share, "ip": node, "used_bytes": gib(used), "total_bytes": gib(total)}
    assert [expected] == fields_of(text, "ray.memory_error_old")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (V06, [(4758, gib("7.3"), "ray_ImpalaTrainer:train()"), (4761, gib("1.02"), "ray_PolicyEvaluator")]),
        (V08, [(2710, gib("2.64"), "ray::_RemoteSingleAgentEnv.step()"), (2170, gib("0.5"), "ray::IDLE")]),
    ],
    ids=["0.6", "0.8"],
)
def test_table_of_old(text: str, expected: list[tuple[int, int, str]]) -> None:
    """The table of consumers of 0.6 (`7.3GB`) and 0.8 (`2.64GiB`) is read from the lines behind."""
    (event,) = read_kind(text, "ray.memory_error_old")
    assert expected == read_top(event.after)


def test_kill_of_2_0() -> None:
    """Ray 2.0 writes one line in the raylet, with the task that it kills."""
    expected = {
        "ip": "10.0.0.1",
        "used_bytes": gib("23.63"),
        "total_bytes": gib("33.28"),
        "used_ratio": 0.709971,
        "threshold_ratio": 0.7,
        "name": "the_real_oom_actor:Leaker.__init__",
    }
    assert [expected] == fields_of(V20, "ray.memory_kill_old")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            V22_TASK,
            {"task_id": TASK, "name": "allocate_memory", "pid": 91085, "victim_bytes": gib("24.99")},
            id="task",
        ),
        pytest.param(
            V22_ACTOR,
            {"actor_id": ACTOR, "name": "SimEnv.__init__", "pid": 5870, "victim_bytes": gib("2.22")},
            id="actor",
        ),
        pytest.param(
            V22_NO_TASK,
            {"task_id": "NIL_ID", "name": "download_batch", "pid": 115205, "victim_bytes": gib("0.18")},
            id="no task yet",
        ),
        pytest.param(
            V255,
            {"name": "ReadRange->MapBatches(f)", "pid": 3471, "victim_bytes": gib("2.85")},
            id="2.55",
        ),
        pytest.param(
            f"Selected to kill: (Actor({ACTOR}) pid=2041, actual memory used=0.44GB)\n",
            {"pid": 2041, "victim_bytes": gib("0.44")},
            id="2.55 actor",
        ),
    ],
)
def test_victim(text: str, expected: dict[str, Value]) -> None:
    """The victim's name, pid and memory are read, whether it is a task, an actor or neither yet."""
    assert [expected] == fields_of(text, "ray.memory_kill_victim")


def test_victim_is_not_known_in_2_1() -> None:
    """Ray 2.1 does not say which task it killed."""
    assert read_kind(V21, "ray.memory_kill_victim") == []


def test_numbers_on_a_line_of_their_own() -> None:
    """In an exception of 2.55 the text is broken, and the numbers stand on a line without the node."""
    text = "  115.24GB / 126.80GB (0.908833), which exceeds the memory usage threshold of 0.905000.\n"
    expected = {
        "used_bytes": gib("115.24"),
        "total_bytes": gib("126.80"),
        "used_ratio": 0.908833,
        "threshold_ratio": 0.905,
    }
    assert [expected] == fields_of(text, "ray.memory_kill_numbers")


def test_reason_of_2_60() -> None:
    """Ray 2.60 gives the exact bytes."""
    expected = {
        "used_bytes": 2137358336,
        "threshold_bytes": 2022121088,
        "threshold_ratio": 0.08,
        "total_bytes": 25276514304,
    }
    assert [expected] == fields_of(V260, "ray.memory_reason")


ROWS = [
    (91085, gib("24.99"), "ray::allocate_memory"),
    (2936, gib("4.10"), ""),
    (77, gib("0.52"), "/usr/bin/python3 -m ray.dashboard.agent --node-ip-address=10.0.0.1 --metrics-export-port=4..."),
    (78, gib("0.10"), "ray::dask:('sort_index-..', 961)"),
]


@pytest.mark.parametrize(
    "text", [V22_TASK, V22_GLUED, V22_TASK.replace("`", "")], ids=["plain", "glued", "no backtick"]
)
def test_top_table(text: str) -> None:
    """The table of 2.2 to 2.54 is read with empty, cut and quoted commands, glued or not."""
    (event,) = read_kind(text, "ray.memory_top")
    assert read_top(event.after, event.text) == ROWS


def test_top_table_behind_a_prefix() -> None:
    """Rows that the driver prints with the raylet's prefix are rows."""
    text = "(raylet) Top 10 memory users:\n(raylet) PID\tMEM(GB)\tCOMMAND\n(raylet) 91\t1.50\tray::f\n(raylet) 92\t0.25\t\nRefer\n"
    (event,) = read_kind(text, "ray.memory_top")
    assert [(91, gib("1.50"), "ray::f"), (92, gib("0.25"), "")] == read_top(event.after, event.text)


def test_top_table_in_one_line() -> None:
    """The one-line table of 2.55 is split at its rows, not at commas inside commands."""
    (event,) = read_kind(V255, "ray.memory_top")
    expected = [
        (2936, gib("4.10"), ""),
        (2938, gib("4.02"), "ray::ReadRange->MapBatches(f)"),
        (3471, gib("2.85"), "ray::IDLE"),
        (77, gib("0.52"), "/usr/bin/python3 -m ray.dashboard.agent"),
    ]
    assert expected == read_top(event.after, event.text)


@pytest.mark.parametrize("lines", [(), ("no row",), ("PID\tMEM(GB)\tCOMMAND",)])
def test_no_table(lines: tuple[str, ...]) -> None:
    """Where no row follows there is no table."""
    assert read_top(lines, "Top 10 memory users:") == []


def test_row_by_itself() -> None:
    """A row of a ray worker is an event even where the header was cut away."""
    assert [{"pid": 91085, "rss_bytes": gib("24.99"), "name": "allocate_memory"}] == fields_of(
        "91085\t24.99\tray::allocate_memory\n", "ray.memory_row"
    )


@pytest.mark.parametrize(
    "text",
    [
        "(raylet) Task _map_task failed due to oom. There are infinite oom retries remaining, so the task will be retried.",
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        "Error: 1 worker(s) were killed due to the node running low on memory.",
        f"Memory on the node (IP: 10.0.0.1, ID: {NODE}) where the task was ... (abridged)",
    ],
)
def test_kill_notice(text: str) -> None:
    """A kill without its numbers, as people abridge it, leaves a notice."""
    assert [e.kind for e in read_log(text) if e.kind == "ray.memory_kill_notice"] == ["ray.memory_kill_notice"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "(raylet) [2025-04-02 15:02:00,117 E 135782 135782] (raylet) node_manager.cc:3069: 1 Workers (tasks / actors) killed due "
            f"to memory pressure (OOM), 0 Workers crashed due to other reasons at node (ID: {NODE}, IP: 10.0.0.1) over the last time period.",
            {"oom_count": 1, "other_count": 0, "node_id": NODE, "ip": "10.0.0.1"},
        ),
        (
            "[2025-04-02 15:02:00,117 E 1 1] (raylet) node_manager.cc:3280: 0 Workers (tasks / actors) killed due "
            f"to memory pressure (OOM), 3 Workers crashed due to other reasons at node (ID: {NODE}, IP: 10.0.0.1) over the last time period.",
            {"oom_count": 0, "other_count": 3, "node_id": NODE, "ip": "10.0.0.1"},
        ),
    ],
    ids=["killed", "crashed"],
)
def test_summary(line: str, expected: dict[str, Value]) -> None:
    """The summary keeps kills and other crashes apart, for the second may be the one that is not zero."""
    assert [expected] == fields_of(line, "ray.memory_summary")


@pytest.mark.parametrize(
    ("line", "threshold", "share", "unit", "total"),
    [
        (
            "memory_monitor.cc MemoryMonitor initialized with usage threshold at 34664513536 bytes (0.97 system memory), total system memory bytes: 35738255360",
            34664513536,
            0.97,
            "",
            35738255360,
        ),
        (
            "threshold_memory_monitor.cc:52: MemoryMonitor initialized with usage threshold at 124382252892 bytes (90.500000% of system "
            "memory), total system memory bytes: 137438953472, monitor interval: 100ms",
            124382252892,
            90.5,
            "%",
            137438953472,
        ),
        (
            "ThresholdMemoryMonitor initialized with usage threshold at 124382252892 bytes (90.500000% of system memory), total system "
            "memory bytes: 137438953472, monitor interval: 100ms, resource isolation enabled, monitoring only user slice memory usage",
            124382252892,
            90.5,
            "%",
            137438953472,
        ),
    ],
    ids=["to 2.54", "2.55", "later"],
)
def test_monitor_start(line: str, threshold: int, share: float, unit: str, total: int) -> None:
    """The monitor's start gives threshold and total; whether the share is a percentage is kept."""
    expected = {"threshold_bytes": threshold, "share": share, "unit_text": unit, "total_bytes": total}
    assert [expected] == fields_of(line, "ray.monitor_start")


# --- vanished workers and nodes ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "2021-03-01 10:00:00,000\tWARNING worker.py:1121 -- A worker died or was killed while executing a task by an unexpected "
            f"system error. To troubleshoot the problem, check the logs for the dead worker. Task ID: {TASK}",
            {},
        ),
        (
            "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, "
            f"check the logs for the dead worker. RayTask ID: {TASK} Worker ID: {WORKER} Node ID: {NODE} Worker IP address: 10.0.0.2 "
            "Worker port: 10233 Worker PID: 884210 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
            "connection error code 2. End of file. There are some potential root causes. (1) The process is killed by SIGKILL by OOM "
            "killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed unexpectedly due to SIGSEGV or "
            "other unexpected errors.",
            {"pid": 884210},
        ),
        (
            "(raylet) A worker died or was killed while executing a task by an unexpected system error. To troubleshoot the problem, "
            f"check the logs for the dead worker. Lease ID: {LEASE} Worker ID: {WORKER} Node ID: {NODE} Worker IP address: 10.0.0.2 "
            "Worker port: 10233 Worker PID: 77 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a "
            "connection error code 2. End of file. Some common causes include: (1) the process was killed by the OOM killer due to high "
            "memory usage, (2) ray stop --force was called, or (3) the worker crashed unexpectedly due to SIGSEGV or another unexpected "
            "error.",
            {"pid": 77},
        ),
    ],
    ids=["1.x", "2.0", "2025"],
)
def test_worker_died(line: str, expected: dict[str, Value]) -> None:
    """A worker that died gives its pid where the text has it."""
    assert [expected] == fields_of(line, "ray.worker_died")


@pytest.mark.parametrize("exit_type", ["SYSTEM_ERROR", "UNEXPECTED_SYSTEM_EXIT"])
def test_stock_text_is_no_memory_kill(exit_type: str) -> None:
    """The stock text names the OOM killer as one guess of three; it is a vanished worker and nothing else."""
    line = (
        f"The actor is dead because its worker process has died. Worker exit type: {exit_type} Worker exit detail: Worker "
        "unexpectedly exits with a connection error code 2. End of file. There are some potential root causes. (1) The process is "
        "killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is called. (3) The worker is crashed "
        "unexpectedly due to SIGSEGV or other unexpected errors."
    )
    assert [event.kind for event in read_log(line)] == ["ray.worker_vanished"]


@pytest.mark.parametrize(
    "line",
    [
        f"The node with client ID {WORKER} has been marked dead because the monitor has missed too many heartbeats from it.",
        f"The node with node id: {NODE} and ip: 10.0.0.1 has been marked dead because the detector has missed too many heartbeats "
        "from it. This can happen when a raylet crashes unexpectedly or has lagging heartbeats.",
        f"The node with node id: {NODE} and address: 10.0.0.1 and node name: 10.0.0.1 has been marked dead because the detector has "
        "missed too many heartbeats from it. This can happen when a \t(1) raylet crashes unexpectedly (OOM, preempted node, etc.)",
    ],
    ids=["0.x", "1.x", "2.x"],
)
def test_node_dead(line: str) -> None:
    """A node marked dead is recognised in all generations, and `(OOM, ...)` in it is a guess."""
    assert [event.kind for event in read_log(line)] == ["ray.node_dead"]


def test_exit_in_the_gcs() -> None:
    """The GCS says the type of a worker's exit."""
    line = (
        f"(gcs_server) gcs_worker_manager.cc:55: Reporting worker exit, worker id = {WORKER}, node id = {NODE}, address = , "
        "exit_type = NODE_OUT_OF_MEMORY, exit_detail = Task was killed due to the node running low on memory."
    )
    assert [fields["exit_type"] for fields in fields_of(line, "ray.worker_exit_gcs")] == ["NODE_OUT_OF_MEMORY"]


# --- object store, disk, scheduling ------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        (
            f"plasma_store_provider.cc:122: Failed to put object {WORKER} in object store because it is full. Object size is 42949673984 bytes.",
            "ray.object_store_full",
            {"object_id": WORKER, "object_bytes": 42949673984},
        ),
        ("(global lru) capacity: 34359738368", "ray.object_store_capacity", {"capacity_bytes": 34359738368}),
        (
            f"(pid=raylet) [2021-02-01 10:00:00,000 E 1 1] store.cc:306: Not enough memory to create the object {WORKER}, "
            "data_size=83886321, metadata_size=6, retrying after a timeout",
            "ray.object_store_retry",
            {"object_id": WORKER, "object_bytes": 83886321},
        ),
        ("store.cc:513: Plasma store at capacity", "ray.object_store_retry", {}),
        (
            "Current usage: 21.6407 / 13.9284 GB",
            "ray.object_store_usage",
            {"used_bytes": gib("21.6407"), "capacity_bytes": gib("13.9284")},
        ),
        (
            "(raylet) Spilled 14530 MiB, 228 objects, write throughput 2389 MiB/s.",
            "ray.spilled",
            {"spilled_text": "14530", "object_count": 228},
        ),
        (
            "WARNING services.py:1326 -- WARNING: The object store is using /tmp instead of /dev/shm because /dev/shm has only 67108864 bytes available.",
            "ray.shm_small",
            {"shm_bytes": 67108864},
        ),
        (
            "ValueError: The configured object store size (21.47483648 GB) exceeds /dev/shm size (17.17986918 GB). This will harm performance.",
            "ray.shm_exceeded",
            {"store_text": "21.47483648", "shm_text": "17.17986918"},
        ),
    ],
)
def test_object_store(line: str, kind: str, expected: dict[str, Value]) -> None:
    """The object store's messages give their sizes."""
    assert [expected] == fields_of(line, kind)


@pytest.mark.parametrize(
    ("line", "share", "available"),
    [
        (
            "file_system_monitor.cc:105: /mnt/data0/ray is over 0.95% full, available space: 50637901824. Object creation will fail if spilling is required.",
            "0.95",
            "50637901824",
        ),
        (
            "file_system_monitor.cc:111: /tmp/ray/session_a is over 95% full, available space: 1392345088; capacity: 269427478528. Object creation will fail",
            "95",
            "1392345088",
        ),
        (
            "file_system_monitor.cc:116: /tmp/ray/session_a is over 95% full, available space: 42.6695 GB; capacity: 876.137 GB. Object creation will fail",
            "95",
            "42.6695",
        ),
    ],
    ids=["2.0.0", "2.0.1", "2.6"],
)
def test_disk_full(line: str, share: str, available: str) -> None:
    """The disk warning is read in its three wordings, and the full stop is no part of the number."""
    assert [(share, available)] == [(f["full_text"], f["available_text"]) for f in fields_of(line, "ray.disk_full")]


@pytest.mark.parametrize(
    "line",
    [
        "(autoscaler +34s) Error: No available node types can fulfill resource request defaultdict(<class 'float'>, {'CPU': 8.0, 'GPU': 8.0}).",
        "(scheduler +21s, ip=10.0.0.1) Error: No available node types can fulfill resource request {'CPU': 8.0}.",
        "{'GPU': 1.0, 'CPU': 1.0} * 8 (STRICT_PACK): 1+ pending placement groups",
    ],
)
def test_unschedulable(line: str) -> None:
    """A request that no node can fulfil is a matter of scheduling."""
    assert [event.kind for event in read_log(line)] == ["ray.unschedulable"]


@pytest.mark.parametrize(
    ("line", "name", "error"),
    [
        (
            "ray.exceptions.RayTaskError(OutOfMemoryError): ray::LLMActor.backload_to_gpu() (pid=23801, ip=10.0.0.1)",
            "LLMActor.backload_to_gpu",
            "OutOfMemoryError",
        ),
        (
            "ray.exceptions.RayTaskError(ValueError): \x1b[36mray::WorkerDict.update_actor()\x1b[39m (pid=1, ip=10.0.0.1)",
            "WorkerDict.update_actor",
            "ValueError",
        ),
    ],
)
def test_task_error(line: str, name: str, error: str) -> None:
    """The error of a task names its method and the error inside, coloured or not."""
    assert [(name, error)] == [(fields["name"], fields["error"]) for fields in fields_of(line, "ray.task_error")]
