"""What NCCL, gloo or torch's process groups say when ranks wait on each other.

Watchdog wording of torch 1.9 to 2.7+ (torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp):

    [rank3]:[E1203 11:27:45.310468221 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught collective operation
    timeout: WorkNCCL(SeqNum=7322, OpType=_ALLGATHER_BASE, NumelIn=20480, NumelOut=163840,
    Timeout(ms)=600000) ran for 600038 milliseconds before timing out.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.torch.pin_failed,
        r"did you run into the locked memory limit",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/ibverbs/buffer.cc:48] ibv_reg_mr: Cannot allocate "
        "memory (did you run into the locked memory limit?)",
        when="gloo over ibverbs, where ulimit -l is too small",
    ),
    line(
        EVENT.torch.pin_failed,
        r"(?:ibv_\w{1,40}|mlx5dv_devx_\w{1,40})(?:\([^)\n]{0,120}\))? failed(?: with error| ?:) Cannot allocate memory"
        r"|[Pp]lease set max locked memory \(ulimit -l\) to",
        "mlx5_0: ibv_create_cq(cqe=4096) failed: Cannot allocate memory : Please set max locked memory (ulimit -l) to "
        "'unlimited' (current: 64 kbytes)",
        when="UCX, src/uct/ib; NCCL, src/misc/ibvwrap.cc",
    ),
    line(
        EVENT.nccl.timeout,
        r"(?:\[Rank (?P<rank>\d+)\] )?(?:Watchdog caught collective operation timeout|Work WorkNCCL\()"
        r"(?:[: ]{0,3}(?:WorkNCCL\()?(?:SeqNum=(?P<seq>\d+), )?"
        r"OpType=(?P<op>\w+)(?:, NumelIn=(?P<numel_in>\d+)(?:, NumelOut=(?P<numel_out>\d+))?)?"
        r"(?:, Timeout\(ms\)=(?P<timeout_ms>\d+)\))?)?"
        r"(?: ran for (?P<ran_ms>\d+) milliseconds)?",
        "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, "
        "Timeout(ms)=1800000) ran for 1801377 milliseconds before timing out.",
    ),
    line(
        EVENT.nccl.work_status,
        r"Rank (?P<rank>\d+)\] +(?:Timeout at NCCL work: \d+"
        r"|Exception \(either an error or timeout\) detected by watchdog at work: \d+"
        r"|failure detected by watchdog at work sequence id: \d+ PG status)[,:]{1,2} ?last enqueued (?:NCCL )?work: "
        r"(?P<enqueued>-?\d+), "
        r"last completed (?:NCCL )?work: (?P<completed>-?\d+)",
        "[PG 3 Rank 4] Timeout at NCCL work: 7322, last enqueued NCCL work: 7322, last completed NCCL work: 7321.",
    ),
    line(
        EVENT.nccl.down,
        r"we are taking the entire process down",
        "To avoid data inconsistency, we are taking the entire process down.",
    ),
    line(
        EVENT.nccl.heartbeat,
        r"watchdog got stuck for (?P<stuck>\d+) seconds without making progress|Heartbeat monitor timed out"
        r"|due to ProcessGroupNCCL watchdog hang",
        "[PG ID 0 PG GUID 0(default_pg) Rank 7] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making "
        "progress",
    ),
    line(
        EVENT.nccl.remote_error,
        r"remote process exited or there was a network error|ncclRemoteError|ncclSystemError"
        r"|NCCL communicator was aborted on rank"
        r"|socket(?:Start|Poll|Progress)?Connect(?:Check)?: exceeded (?:timeouts|retries|error retry count)",
        "NCCL error in: ProcessGroupNCCL.cpp:1333, remote process exited or there was a network error, NCCL version "
        "2.18.6",
    ),
    line(
        EVENT.nccl.closed_by_peer,
        r"Connection closed by remote peer (?P<ip>[^\s<]+)|Call to recv from (?P<peer_text>[^\s<]+)<\d+> failed"
        r"|Broken pipe",
        "misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node01<47113>",
    ),
    line(
        EVENT.nccl.ib_error,
        r"NET/IB : Got completion from peer (?P<ip>[^\s<]{1,60})\S{0,40} with (?:error|status=)\s?(?P<status>\d+)"
        r"|Got async (?:error )?event ?: port error"
        r"|Call to ibv_\w{1,40} failed(?:$|\s*\[)"
        r"|Call to ibv_\w{1,40} failed with error (?:Invalid argument|Connection timed out|No such device"
        r"|Input/output error|No data available|Bad address|Network is unreachable|Unknown error|Operation not)"
        r"|NET/IB.{0,200}?(?:IBV_WC_|Unable to open|No device found)",
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<38560> with error 12, opcode 0, len 0, vendor err 129",
    ),
    line(
        EVENT.nccl.socket_setup,
        r"Bootstrap : no socket interface found|NET/Socket : (?:Connect to|no interface found)",
        "NCCL WARN Bootstrap : no socket interface found",
    ),
    line(
        EVENT.nccl.unreachable,
        r"NCCL WARN (?:socket\w{4,20}|ncclSocket\w{4,20}): Connect to [^\n]{1,100} failed",
        "NCCL WARN socketStartConnect: Connect to fe80::1%ib1<17943> failed : Software caused connection abort",
    ),
    line(
        EVENT.nccl.hccl_timeout,
        r"Notify register (?:has not received|times out)|HCCL_(?:EXEC|CONNECT)_TIMEOUT[^\n]{0,80}time ?d? ?out"
        r"|\bEI000[26]: ",
        "EI0002: [PID: 7] The wait execution of the Notify register times out. Reason: The Notify register has not "
        "received the Notify record from remote rank: [unknown].",
        when="CANN's HCCL, error codes EI0002 (execution) and EI0006 (connection)",
    ),
    line(
        EVENT.nccl.unreachable,
        r"(?:NCCL|UCX|ucp_|[Gg]loo|c10d|socketPollConnect|pml_ucx)[^\n]{0,200}"
        r"(?:No route to host|Network is unreachable|Destination is unreachable)"
        r"(?:, retrying \((?P<try_count>\d{1,4})/(?P<most_count>\d{1,4})\))?",
        "NCCL INFO socketPollConnect: connect returned No route to host, retrying (34/34) after sleep for 3400 msec",
        when="NCCL's misc/socket.cc, HPC-X's pml_ucx.c",
    ),
    line(
        EVENT.gloo.mesh_failed,
        r"Gloo connectFullMesh failed with",
        "[E130 18:11:34.707542570 ProcessGroupGloo.cpp:143] Gloo connectFullMesh failed with [../third_party/gloo/gloo/"
        "transport/tcp/pair.cc:144] no error",
    ),
    line(
        EVENT.nccl.cuda_oom,
        r"Failed to CUDA (?:calloc|malloc)(?: async)? (?P<request_bytes>\d+) bytes"
        r"|Cuda failure '?(?:2 )?'?out of memory'?",
        "include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'",
    ),
    line(
        EVENT.nccl.shm_failed,
        r"NCCL WARN.{0,200}?(?:/dev/shm/nccl|posix_fallocate|shared memory segment).{0,200}?(?:failed|No space left)"
        r"|Error while (?:creating|attaching to) shared memory segment"
        r"|Error: failed to (?:extend|create|open) (?:/dev/shm/|shared memory (?:file|mapping))",
        "NCCL WARN Error: failed to extend /dev/shm/nccl-AbCdEf to 9637892 bytes, error: No space left on device (28) "
        "failed",
    ),
    line(
        EVENT.torch.pin_failed,
        r"Failed to CUDA host alloc \d{1,19} bytes",
        "include/alloc.h:62 NCCL WARN Failed to CUDA host alloc 4194304 bytes",
        when="src/include/alloc.h, 2.18 and newer",
    ),
    line(
        EVENT.python.memory_error,
        r"NCCL WARN Failed to malloc (?P<request_bytes>\d{1,18}) bytes",
        "include/alloc.h:120 NCCL WARN Failed to malloc 67108864 bytes",
    ),
    line(
        EVENT.nccl.init_timeout,
        r"NCCL timeout (?:in:? |when waiting for nonblocking call)",
        "RuntimeError: NCCL timeout in communicator initialization.",
        when="torch/csrc/distributed/c10d/NCCLUtils.cpp with nonblocking communicators, 2.1 and newer",
    ),
    line(
        EVENT.nccl.version,
        r"NCCL version (?P<version>\d+\.\d+(?:\.\d+)?)",
        "NCCL version 2.21.5+cuda12.4",
    ),
    line(
        EVENT.nccl.store_timeout,
        r"Timed out initializing process group in store based barrier on rank:? (?P<rank>\d+)"
        r"|store->get\('[^']*'\) got error"
        r"|recvValue failed|(?:wait timeout|waitForInput: [^\n]{0,200}timed out) after (?P<wait_ms>\d+)ms"
        r"|Timed out after \S{1,20} seconds waiting for clients"
        r"|client socket has timed out after \S{1,20} while trying to connect"
        r"|RendezvousTimeoutError|Rendezvous timeout occurred|timed out waiting for all \d{1,9} members to join"
        r"|timed out in _all_gather after",
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1",
    ),
    line(
        EVENT.nccl.dist_error,
        r"(?:torch\.distributed\.)?(?:DistBackendError|DistNetworkError|DistStoreError)",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1333",
    ),
    line(
        EVENT.nccl.port_taken,
        r"EADDRINUSE|address already in use",
        "RuntimeError: The server socket has failed to listen on any local network address. code: -98, name: "
        "EADDRINUSE, "
        "message: address already in use",
    ),
    line(
        EVENT.nccl.monitored_barrier,
        r"monitoredBarrier.*(?:Ranks (?P<ranks_text>[0-9, ]+) failed to pass|Rank (?P<rank>\d+) failed to pass)",
        "RuntimeError: Rank 0 timed out in monitoredBarrier after 1800000 ms. monitoredBarrier: Ranks 1 failed to "
        "pass monitoredBarrier",
    ),
    line(
        EVENT.nccl.desync_report,
        r"Detected mismatch between collectives on ranks?|Collectives differ in the following aspects",
        "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: "
        "CollectiveFingerPrint(...)",
    ),
    line(
        EVENT.gloo.timeout,
        r"\[[^\[\]\n]{0,300}gloo/transport/[^\[\]\n]{0,120}\] Timed out waiting (?P<limit_ms>\d+)ms for "
        r"(?P<what_text>recv|send) operation"
        r"|gloo/[\w/.]{1,60}:\d+\] (?:Application timeout caused pair closure|(?:Read|Write|Connect) timeout"
        r"|Wait timeout for key)",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for "
        "recv operation to complete",
    ),
    line(
        EVENT.gloo.size_mismatch,
        r"op\.preamble\.length <= op\.nbytes\. (?P<sent_bytes>\d+) vs (?P<expected_bytes>\d+)",
        "what(): [enforce fail at ../third_party/gloo/gloo/transport/tcp/pair.cc:446] op.preamble.length <= "
        "op.nbytes. 4096 vs 1024",
    ),
    line(
        EVENT.gloo.closed,
        r"gloo/transport/.{0,200}?(?:Connection closed by peer|Connection reset by peer|Connection refused"
        r"|Socket unexpectedly closed)",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer "
        "[127.0.0.1]:41234",
    ),
    line(
        EVENT.net.refused,
        r"Connection refused|Connection reset by peer",
        "grpc_status:14, grpc_message: failed to connect to all addresses; last error: Connection refused",
    ),
)
