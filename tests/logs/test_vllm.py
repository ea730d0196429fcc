"""vLLM of all generations and sglang."""

from __future__ import annotations

import pytest

from rlhfdoctor.types import Value
from rlhfdoctor.units import GIB
from tests.build import fields_of, read_kind, read_log

PREFIXES = {
    "v0": "INFO 01-11 15:51:18 llm_engine.py:275] ",
    "v1": "ERROR 05-07 02:14:18 [core.py:396] ",
    "0.10": "(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] ",
    "2026": "(EngineCore pid=1154) INFO 07-15 15:33:47 [v1/worker/gpu_worker.py:144] ",
    "worker": "(Worker_TP0 pid=1420) INFO 07-15 15:33:47 [shm_broadcast.py:705] ",
}
LINES = {
    "no_cache_blocks": "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.",
    "blocks": "# GPU blocks: 0, # CPU blocks: 256",
    "sleep": "Sleep mode freed 32.90 GiB memory, 1.19 GiB memory is still in use.",
    "asleep": "It took 2.740193 seconds to fall asleep.",
    "awake": "It took 1.207715 seconds to wake up.",
    "engine_dead": "EngineCore failed to start.",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize(("kind", "line"), LINES.items(), ids=LINES)
def test_line_behind_every_prefix(prefix: str, kind: str, line: str) -> None:
    """The prefix of any generation hides no message."""
    assert [f"vllm.{kind}"] == [event.kind for event in read_log(prefix + line) if event.kind.startswith("vllm.")]


@pytest.mark.parametrize("name", ["0.10", "2026", "worker"])
def test_pid_of_the_prefix(name: str) -> None:
    """Newer prefixes tell the process."""
    (event,) = read_kind(PREFIXES[name] + LINES["asleep"], "vllm.asleep")
    assert {"0.10": 17374, "2026": 1154, "worker": 1420}[name] == event.origin.pid


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        (
            "ValueError: The model's max seq len (4096) is larger than the maximum number of tokens that can be stored in KV cache (3664).",
            "vllm.cache_too_small",
            {"length": 4096},
        ),
        (
            "ValueError: To serve at least one request with the models's max seq len (1048576), (24.00 GiB KV cache is needed, which is "
            "larger than the available KV cache memory (9.97 GiB).",
            "vllm.cache_too_small",
            {"length": 1048576, "needed_text": "24.00"},
        ),
        (
            "ValueError: To serve at least one request with the model's max seq len (40960), (4.00 GiB KV cache is needed, which is "
            "larger than the available KV cache memory (3.18 GiB). Based on the available memory, the estimated maximum model length is 34736.",
            "vllm.cache_too_small",
            {"length": 40960, "needed_text": "4.00"},
        ),
        (
            "ValueError: Free memory on device (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB).",
            "vllm.gpu_taken",
            {"free_text": "3.22", "total_text": "4.0", "wanted_ratio": 0.9},
        ),
        (
            "ValueError: Free memory on device cuda:0 (3.22/4.0 GiB) on startup is less than desired GPU memory utilization (0.9, 3.6 GiB).",
            "vllm.gpu_taken",
            {"free_text": "3.22", "total_text": "4.0", "wanted_ratio": 0.9},
        ),
        (
            "CuMemAllocator: sleep freed 31.48 GiB memory in total, of which 6.92 GiB is backed up in CPU and the rest 24.56 GiB is discarded directly.",
            "vllm.sleep_backup",
            {"freed_bytes": round(31.48 * GIB), "backup_bytes": round(6.92 * GIB)},
        ),
        (
            "INFO 01-11 15:51:18 llm_engine.py:234] Initializing an LLM engine (v0.6.6.post1) with config: model='x'",
            "vllm.version",
            {"version": "0.6.6.post1"},
        ),
        (
            "INFO 05-07 02:14:18 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: model='x'",
            "vllm.version",
            {"version": "0.8.5"},
        ),
        (
            "max_total_tokens=131072 is larger than the profiled value -413206. Use the profiled value instead.",
            "sglang.profiled",
            {"wanted": 131072, "profiled": -413206},
        ),
        ("Subprocess scheduler_0 (pid=9) crashed with exit code -6.", "sglang.crashed", {"exit_code": -6}),
    ],
)
def test_fields(line: str, kind: str, expected: dict[str, Value]) -> None:
    """Every wording of a message gives its numbers."""
    assert [expected] == fields_of(line, kind)


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "vllm.engine_dead",
        ),
        ("Worker proc VllmWorker-6 died unexpectedly, shutting down executor.", "vllm.engine_dead"),
        ("MQLLMEngine is already dead, terminating server process", "vllm.engine_dead"),
        ("RuntimeError('Engine loop has died')", "vllm.engine_dead"),
        ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", "vllm.engine_dead"),
        ("CUDA Error: out of memory at /workspace/csrc/cumem_allocator.cpp:56", "vllm.wake_oom"),
        ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", "sglang.no_memory"),
        (
            "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for --max-running-requests. "
            "self.req_to_token_pool.available_size()=1, num_reqs=2,",
            "sglang.no_memory",
        ),
    ],
)
def test_deaths(line: str, kind: str) -> None:
    """The ends of engines are recognised."""
    assert [kind] == [event.kind for event in read_log(line) if event.kind.startswith(("vllm.", "sglang."))]


def test_version_with_a_post_release() -> None:
    """The release number keeps its post-release, by which settings differ."""
    line = "INFO 01-11 15:51:18 llm_engine.py:234] Initializing an LLM engine (v0.6.3.post1) with config: model='x'"
    assert [fields["version"] for fields in fields_of(line, "vllm.version")] == ["0.6.3.post1"]
