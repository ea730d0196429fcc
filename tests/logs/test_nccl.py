"""Watchdog lines of torch 1.9 to 2.7+, NCCL's warnings, stores and ports."""

from __future__ import annotations

import pytest

from rlhfdoctor.types import Value
from tests.build import fields_of, read_kind, read_log

SAID = "Watchdog caught collective operation timeout: "


def watchdog(prefix: str, work: str, ran: int) -> str:
    """A watchdog line."""
    return f"{prefix}{SAID}WorkNCCL({work}) ran for {ran} milliseconds before timing out."


TIMEOUTS = {
    "1.9": (
        watchdog("[E ProcessGroupNCCL.cpp:485] [Rank 6] ", "OpType=ALLREDUCE, Timeout(ms)=1800000", 1801377),
        {"rank": 6, "op": "ALLREDUCE", "timeout_s": 1800.0, "ran_s": 1801.377},
    ),
    "1.13": (
        watchdog(
            "[E ProcessGroupNCCL.cpp:458] [Rank 0] ", "SeqNum=96120, OpType=ALLREDUCE, Timeout(ms)=1800000", 25624887
        ),
        {"rank": 0, "seq": 96120, "op": "ALLREDUCE", "timeout_s": 1800.0, "ran_s": 25624.887},
    ),
    "2.1": (
        watchdog(
            "[E ProcessGroupNCCL.cpp:475] [Rank 1] ",
            "SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000",
            1800172,
        ),
        {"rank": 1, "seq": 3, "op": "ALLREDUCE", "numel_in": 1, "numel_out": 1, "timeout_s": 1800.0, "ran_s": 1800.172},
    ),
    "2.1 blocking wait": (
        "[Rank 1] Work WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) timed out in blocking wait "
        "(NCCL_BLOCKING_WAIT=1).",
        {"rank": 1, "seq": 3, "op": "ALLREDUCE", "numel_in": 1, "numel_out": 1, "timeout_s": 1800.0},
    ),
    "2.2": (
        watchdog(
            "[rank1]:[E ProcessGroupNCCL.cpp:563] [Rank 1] ",
            "SeqNum=9, OpType=_ALLGATHER_BASE, NumelIn=20480, NumelOut=163840, Timeout(ms)=600000",
            600038,
        ),
        {
            "rank": 1,
            "seq": 9,
            "op": "_ALLGATHER_BASE",
            "numel_in": 20480,
            "numel_out": 163840,
            "timeout_s": 600.0,
            "ran_s": 600.038,
        },
    ),
    "2.4": (
        watchdog(
            "[rank7]:[E1203 11:27:45.310468221 ProcessGroupNCCL.cpp:607] [Rank 7] ",
            "SeqNum=7322, OpType=REDUCE_SCATTER, NumelIn=8, NumelOut=1, Timeout(ms)=600000",
            600001,
        ),
        {
            "rank": 7,
            "seq": 7322,
            "op": "REDUCE_SCATTER",
            "numel_in": 8,
            "numel_out": 1,
            "timeout_s": 600.0,
            "ran_s": 600.001,
        },
    ),
    "2.7": (
        watchdog(
            "[rank3]:[E321 11:27:45.310468221 ProcessGroupNCCL.cpp:632] [Rank 3] ",
            "SeqNum=1, OpType=BROADCAST, NumelIn=5, NumelOut=5, Timeout(ms)=60000",
            60050,
        ),
        {"rank": 3, "seq": 1, "op": "BROADCAST", "numel_in": 5, "numel_out": 5, "timeout_s": 60.0, "ran_s": 60.05},
    ),
}


@pytest.mark.parametrize(("line", "expected"), TIMEOUTS.values(), ids=TIMEOUTS)
def test_timeout(line: str, expected: dict[str, Value]) -> None:
    """Every generation gives rank, operation, limit and what else the wording has."""
    assert [expected] == fields_of(line, "nccl.timeout")


@pytest.mark.parametrize(("line", "expected"), TIMEOUTS.values(), ids=TIMEOUTS)
def test_rank_of_the_origin(line: str, expected: dict[str, Value]) -> None:
    """The event's origin bears the rank."""
    (event,) = read_kind(line, "nccl.timeout")
    assert expected["rank"] == event.origin.rank


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[rank3]:[E ProcessGroupNCCL.cpp:1537] [PG 0 Rank 3] Timeout at NCCL work: 1, last enqueued NCCL work: 1, last completed NCCL work: 0.",
            (3, 1, 0),
        ),
        (
            "[PG 3 Rank 4] Exception (either an error or timeout) detected by watchdog at work: 7322, last enqueued NCCL work: 7322, last completed NCCL work: 7321.",
            (4, 7322, 7321),
        ),
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 1] Exception (either an error or timeout) detected by watchdog at work: 808, last "
            "enqueued NCCL work: 809, last completed NCCL work: 807.",
            (1, 809, 807),
        ),
        (
            "[PG ID 0 PG GUID 0(default_pg) Rank 1]  failure detected by watchdog at work sequence id: 9 PG status: last enqueued "
            "work: 9, last completed work: 8",
            (1, 9, 8),
        ),
        (
            "[PG ID 1 PG GUID 1 Rank 3] Timeout at NCCL work: 1, last enqueued NCCL work: -1, last completed NCCL work: -1.",
            (3, -1, -1),
        ),
    ],
    ids=["2.2", "2.4", "2.5", "2.6", "none"],
)
def test_work_status(line: str, expected: tuple[int, int, int]) -> None:
    """The status gives the rank with the last enqueued and completed work."""
    assert [expected] == [(f["rank"], f["enqueued"], f["completed"]) for f in fields_of(line, "nccl.work_status")]


HEARTBEATS = {
    "2.3": "[PG 0 Rank 1] Heartbeat monitor timed out! Process will be terminated after dumping debug info. workMetaList_.size()=103",
    "2.3 fatal": "[F ProcessGroupNCCL.cpp:1169] [PG 0 Rank 1] ProcessGroupNCCL's watchdog got stuck for 600 seconds without making "
    "progress in monitoring enqueued collectives.",
    "2.5": "[PG ID 0 PG GUID 0(default_pg) Rank 7] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in "
    "monitoring enqueued collectives. This typically indicates a NCCL/CUDA API (e.g., CudaEventDestroy) hang",
}


@pytest.mark.parametrize("line", HEARTBEATS.values(), ids=HEARTBEATS)
def test_heartbeat(line: str) -> None:
    """A stuck watchdog is reported from a collective that timed out."""
    assert [event.kind for event in read_log(line)] == ["nccl.heartbeat"]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("To avoid data inconsistency, we are taking the entire process down.", "nccl.down"),
        (
            "misc/socket.cc:538 NCCL WARN Net : Connection closed by remote peer node22<47861>",
            "nccl.closed_by_peer",
        ),
        ("NCCL WARN Net : Call to recv from 10.0.0.1<58355> failed : Broken pipe", "nccl.closed_by_peer"),
        (
            "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node01<47113>",
            "nccl.closed_by_peer",
        ),
        (
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<38560> with error 12, opcode 0, len 0, vendor err 129",
            "nccl.ib_error",
        ),
        (
            "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<38560> with status=12 opcode=129 len=65536 vendor err 129 (Recv) "
            "localGid ::ffff:10.0.0.2 remoteGids::ffff:10.0.0.1",
            "nccl.ib_error",
        ),
        ("NCCL WARN NET/IB : Got async event : port error", "nccl.ib_error"),
        ("include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'", "nccl.cuda_oom"),
        ("include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes", "nccl.cuda_oom"),
        (
            "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: store_based_barrier_key:1 "
            "(world_size=8, worker_count=16, timeout=0:30:00)",
            "nccl.store_timeout",
        ),
        (
            "[1] is setting up NCCL communicator and retreiving ncclUniqueId from [0] via c10d key-value store by key '0', but "
            "store->get('0') got error: Timeout waiting for key: default_pg/0/0 after 1800000 ms",
            "nccl.store_timeout",
        ),
        (
            "[rank1]:[W613 12:19:44.730915508 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3). Connection was likely closed.",
            "nccl.store_timeout",
        ),
        (
            "RuntimeError: The server socket has failed to listen on any local network address. useIpv6: 0, code: -98, name: "
            "EADDRINUSE, message: address already in use",
            "nccl.port_taken",
        ),
        (
            "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete",
            "gloo.timeout",
        ),
    ],
)
def test_other_messages(line: str, kind: str) -> None:
    """NCCL's own warnings, the store and the port each have their kind."""
    assert [kind] == [event.kind for event in read_log(line) if event.kind.startswith(("nccl.", "gloo."))]


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("NET/IB : Got completion from peer 10.0.0.1<38560> with error 12, opcode 0, len 0, vendor err 129", 12),
        ("NET/IB : Got completion from peer 10.0.0.1<38560> with status=5 opcode=129 len=65536 vendor err 249", 5),
    ],
)
def test_ib_status(line: str, status: int) -> None:
    """The peer and the status of a failed completion are read in both wordings."""
    assert [("10.0.0.1", status)] == [(fields["ip"], fields["status"]) for fields in fields_of(line, "nccl.ib_error")]


def test_thread_that_ended_by_the_timeout() -> None:
    """The watchdog's own end repeats the timeout with the rank."""
    line = watchdog(
        "Process group watchdog thread terminated with exception: [Rank 5] ",
        "SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000",
        600100,
    )
    assert [fields["rank"] for fields in fields_of(line, "nccl.timeout")] == [5]


def test_watchdog_at_start() -> None:
    """The harmless line of the watchdog's start gives no timeout."""
    line = "ProcessGroupNCCL initialization options: TORCH_NCCL_ASYNC_ERROR_HANDLING: 1, Timeout(ms): 1800000"
    assert read_kind(line, "nccl.timeout") == []
