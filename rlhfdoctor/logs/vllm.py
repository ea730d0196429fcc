"""What vLLM (V0, V1, 2026) or sglang says: cache blocks, sleep, dead engines."""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.vllm.no_cache_blocks,
        r"No available memory for the cache blocks|Available KV cache memory: -\d"
        r"|Aborted due to the lack of CPU swap space",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine.",
    ),
    line(
        EVENT.vllm.blocks,
        r"# (?:GPU|cuda|CUDA) blocks: (?P<gpu_count>\d+), # CPU blocks: (?P<cpu_count>\d+)",
        "INFO 01-19 08:44:31 llm_engine.py:275] # GPU blocks: 0, # CPU blocks: 256",
        when="V0",
    ),
    line(
        EVENT.vllm.cache_too_small,
        r"max seq len \((?P<length>\d+)\)(?: is larger than the maximum number of tokens"
        r"|, \((?P<needed_text>[0-9.]+) GiB KV cach)",
        "ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is "
        "needed, which is "
        "larger than the available KV cache memory (9.97 GiB).",
    ),
    line(
        EVENT.vllm.gpu_taken,
        r"Free memory on device(?: \S+)? \((?P<free_text>[0-9.]+)/(?P<total_text>[0-9.]+) GiB\) on startup is less "
        r"than desired GPU memory utilization "
        r"\((?P<wanted_ratio>[0-9.]+)",
        "ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization "
        "(0.9, 3.6 GiB).",
    ),
    line(
        EVENT.vllm.sleep_backup,
        r"sleep freed (?P<freed_gib>[0-9.]+) GiB memory in total, of which (?P<backup_gib>[0-9.]+) GiB is backed up "
        r"in CPU",
        "CuMemAllocator: sleep freed 31.48 GiB memory in total, of which 6.92 GiB is backed up in CPU and the rest "
        "24.56 GiB is discarded directly.",
    ),
    line(
        EVENT.vllm.sleep,
        r"Sleep mode freed (?P<freed_gib>[0-9.]+) GiB memory, (?P<left_gib>[0-9.]+) GiB memory is still in use",
        "INFO 03-02 22:51:40 [gpu_worker.py:81] Sleep mode freed 55.18 GiB memory, 8.04 GiB memory is still in use.",
    ),
    line(
        EVENT.vllm.sleep_grew,
        r"Memory usage increased after sleeping",
        "AssertionError: Memory usage increased after sleeping",
    ),
    line(
        EVENT.vllm.asleep,
        r"It took (?P<took>[0-9.]+) seconds to fall asleep",
        "It took 2.740193 seconds to fall asleep.",
    ),
    line(
        EVENT.vllm.awake,
        r"It took (?P<took>[0-9.]+) seconds to wake up",
        "INFO 02-11 13:08:52 executor_base.py:219] It took 1.207715 seconds to wake up.",
    ),
    line(
        EVENT.vllm.wake_oom,
        r"out of memory at .{0,80}cumem_allocator\.cpp:\d+|out of memory\) file=\S+ func=cu_mem_create"
        r"|torch_memory_saver\.cpp\] CUresult error:? {1,2}(?:result=)?2\b",
        "CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:62",
    ),
    line(
        EVENT.vllm.engine_dead,
        r"EngineDeadError|EngineCore failed to start|Engine core initialization failed|MQLLMEngine is already dead"
        r"|Engine loop has died"
        r"|Worker proc \S+ died unexpectedly|EngineCore encountered a(?:n issue| fatal error)"
        r"|Engine core proc \S{1,60} died unexpectedly|Engine process \(pid \d{1,10}\) died|Engine iteration timed out"
        r"|(?:MQLLMEngine|RPCServer) didn't reply within|RPC call to \w{1,60} timed out",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
    ),
    line(
        EVENT.vllm.worker_died,
        r"(?:Worker \S{1,80} pid (?P<pid>\d{1,10}) died, exit code:|\(PID: \d{1,10}\) died with exit code) "
        r"(?P<exit_code>-?\d{1,4})",
        "ERROR 01-11 15:58:20 multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 4711 died, exit code: -9",
        when="executor/multiproc_worker_utils.py to 0.10; v1/utils.py",
    ),
    line(
        EVENT.vllm.version,
        r"(?:Initializing (?:an LLM engine|a V1 LLM engine)|LLM engine|vLLM API server version|vLLM version) "
        r"\(?v?(?P<version>\d+\.\d+(?:\.\d+)?(?:\.post\d+)?)",
        "INFO 01-11 15:51:18 llm_engine.py:234] Initializing an LLM engine (v0.6.6.post1) with config: model='x'",
    ),
    line(
        EVENT.vllm.ascend,
        r"vllm_ascend|torch_npu|\[worker_v1\.py:\d+\]|NPU out of memory",
        "INFO 11-02 09:31:07 [worker_v1.py:171] Sleep mode freed 12.40 GiB memory, 9.11 GiB memory is still in use.",
        when="Ascend NPUs",
    ),
    line(
        EVENT.sglang.profiled,
        r"max_total_tokens=(?P<wanted>-?\d+) is larger than the profiled value (?P<profiled>-?\d+)",
        "max_total_tokens=131072 is larger than the profiled value -413206. Use the profiled value instead.",
    ),
    line(
        EVENT.sglang.no_memory,
        r"Not enough memory\. Please try to increase --mem-fraction-static|leave no GPU memory for the KV cache"
        r"|alloc_req_slots runs out of memory"
        r"|\b\w{1,20} out of memory\. Try to lower your batch size"
        r"|Out of memory\. Please set a smaller number for|Failed to retract any request",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
    ),
    line(
        EVENT.sglang.crashed,
        r"(?:Subprocess scheduler_\d+ .{0,60}crashed with|Child process unexpectedly failed with an) exit code "
        r"(?P<exit_code>-?\d+)",
        "Subprocess scheduler_0 (pid=1) crashed with exit code -6.",
    ),
    line(
        EVENT.sglang.scheduler_dead,
        r"Rank \d{1,6} scheduler (?:is dead|died)|Received sigquit from a child process"
        r"|SIGQUIT received\. .{0,80}child failed",
        "[2026-02-03 11:20:15] Rank 3 scheduler is dead. Please check if there are relevant logs.",
        when="srt/entrypoints/engine.py, 0.4 and newer",
    ),
    line(
        EVENT.sglang.watchdog,
        r"Watchdog timeout \(self\.watchdog_timeout=",
        "[2026-02-03 11:20:15 TP0] Watchdog timeout (self.watchdog_timeout=300)",
        when="a forward pass hung; srt/managers/scheduler.py, 0.3 and newer",
    ),
)
