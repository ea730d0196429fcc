"""Arithmetic: sums that must agree, sizes that tell what was asked for, units that are easy to get wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlhfdoctor.core.estimate import estimate
from rlhfdoctor.core.session import Session
from rlhfdoctor.types import Value

Facts = Callable[[Mapping[str, str]], dict[str, Value]]
GIB = 1024**3


HEADER = "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name\n"


def test_task_table_adds_up(facts: Facts) -> None:
    """RSS of the task table is summed in pages of 4 kB."""
    found = facts(
        {
            "dmesg.txt": HEADER
            + "[ 7]     0   7  2000  1000  4096  0  0 python\n[ 8]     0   8  2000   500  4096  0  0 python\n"
        }
    )
    assert (found["kernel.table_bytes"], found["kernel.top_to_second_ratio"]) == (1500 * 4096, 2.0)


def test_page_size_of_16_kb_is_told_by_the_victim(facts: Facts) -> None:
    """The victim's total_vm in pages against its kB gives the page size."""
    killed = "Out of memory: Killed process 7 (python) total-vm:32000kB, anon-rss:16000kB, file-rss:0kB, shmem-rss:0kB, UID:0\n"
    found = facts({"dmesg.txt": HEADER + "[ 7]     0   7  2000  1000  4096  0  0 python\n" + killed})
    assert found["kernel.table_bytes"] == 1000 * 16384


def test_shmem_share_of_the_victim(facts: Facts) -> None:
    """shmem-rss against anon-rss tells pinned and shared memory from heap."""
    killed = (
        "Out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:100kB, file-rss:9kB, shmem-rss:300kB, UID:0\n"
    )
    assert facts({"dmesg.txt": killed})["kernel.victim_shmem_ratio"] == 0.75


def test_rays_ten_largest_against_the_nodes_use(facts: Facts) -> None:
    """The share of the memory in use that the ten largest explain."""
    log = (
        "Memory on the node (IP: 10.0.0.1, ID: ab) where the task (task ID: cd, name=f, pid=9, memory used=1.00GB) was running was 100.00GB / 104.00GB "
        "(0.961538), which exceeds the memory usage threshold of 0.95. Top 10 memory users:\nPID\tMEM(GB)\tCOMMAND\n9\t20.00\tray::f\n10\t10.00\t\nRefer to\n"
    )
    found = facts({"driver.log": log})
    assert (found["ray.top_ratio"], found["ray.total_bytes"]) == (0.3, 104 * GIB)


@pytest.mark.parametrize(
    ("line", "total"),
    [
        ("Mem:            1007         568         178         176         261         430", 1007 * GIB),
        ("Mem:         1031000      568000      178000       17600      261000      430000", 1031000 * 1024**2),
        ("Mem:      1055707136   568000000   178000000     1760000   261000000   430000000", 1055707136 * 1024),
        ("Mem:           1.0Ti       537Gi        42Gi       3.1Gi       458Gi       430Gi", 1024**4),
    ],
)
def test_unit_of_free(facts: Facts, line: str, total: int) -> None:
    """`free` without units is read as -g, -m or kB by its size."""
    assert facts({"free.txt": line + "\n"})["host.total_bytes"] == total


def test_container_limit_against_the_node(facts: Facts) -> None:
    """The limit of docker run is put against the node's memory."""
    found = facts({"launch.sh": "docker run --memory=500g img\n", "meminfo.txt": "MemTotal:       1048576000 kB\n"})
    assert found["host.limit_ratio"] == 0.5


@pytest.mark.parametrize("text", ["9223372036854771712", "max"])
def test_no_limit(facts: Facts, text: str) -> None:
    """The cgroup's way of writing no limit is understood."""
    assert facts({"c.txt": f"$ cat /sys/fs/cgroup/memory.max\n{text}\n"})["host.unlimited"] is True


def test_failing_allocation_is_the_logits(facts: Facts) -> None:
    """tokens x vocabulary x 4 bytes is recognised for the user's model and lengths."""
    size = 16384 * 152064 * 4 / GIB
    log = f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {size:.2f} GiB. GPU 0 has a total capacity of 79.15 GiB of which 3.00 GiB is free.\n"
    launch = "python3 -m verl.trainer.main_ppo data.max_prompt_length=8192 data.max_response_length=8192 actor_rollout_ref.model.path=Qwen/Qwen2.5-7B\n"
    tokens = facts({"driver.log": log, "launch.sh": launch})["cuda.logits_tokens"]
    assert isinstance(tokens, int)
    assert abs(tokens - 16384) < 20


@pytest.mark.parametrize(
    ("two", "name"),
    [
        ("SeqNum=696, OpType=BROADCAST, NumelIn=8, NumelOut=8", "comm.op_differs"),
        ("SeqNum=696, OpType=ALLREDUCE, NumelIn=9, NumelOut=9", "comm.numel_differs"),
        ("SeqNum=699, OpType=ALLREDUCE, NumelIn=8, NumelOut=8", "comm.seq_spread"),
    ],
)
def test_how_ranks_differ(facts: Facts, two: str, name: str) -> None:
    """Same number with another call or size is a mismatch; another number is a lag."""
    line = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL({}, Timeout(ms)=600000) ran for 600022 milliseconds\n"
    found = facts(
        {"driver.log": line.format(1, "SeqNum=696, OpType=ALLREDUCE, NumelIn=8, NumelOut=8") + line.format(2, two)}
    )
    names = ("comm.op_differs", "comm.numel_differs", "comm.seq_spread")
    assert [n for n in names if found.get(n)] == [name]


@pytest.mark.parametrize("waits", [("ALLREDUCE", "BROADCAST"), ("ALLREDUCE",)])
def test_ranks_at_two_numbers(facts: Facts, waits: tuple[str, ...]) -> None:
    """Two operations are a mismatch, unless a rank waits in two groups at once: which one the other is in is unknown."""
    line = "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={}, OpType={}, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600022 milliseconds\n"
    log = "".join(line.format(1, 800 + n, op) for n, op in enumerate(waits)) + line.format(0, 699, "BROADCAST")
    assert bool(facts({"driver.log": log}).get("comm.op_differs")) == (len(waits) == 1)


@pytest.mark.parametrize(
    ("version", "flag", "fp32"),
    [
        ("0.5.3", "", True),
        ("0.5.4", "", False),
        ("0.5.4", "--grad_accum_dtype fp32", True),
        ("0.5.3", "--grad_accum_dtype bf16", False),
        ("0.1.4", "", None),
    ],
)
def test_meaning_of_unset_grad_accum_dtype(facts: Facts, version: str, flag: str, fp32: bool | None) -> None:
    """Unset means fp32 in OpenRLHF 0.1.5 to 0.5.3 and not from 0.5.4 on."""
    found = facts(
        {
            "pip-freeze.txt": f"openrlhf=={version}\n",
            "launch.sh": f"python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3 {flag}\n",
        }
    )
    assert found.get("grad_accum.fp32") is fp32


@pytest.mark.parametrize(("version", "pinned"), [("0.1.4", False), ("0.1.5", True), ("0.11.2", True)])
def test_pinned_by_the_framework(facts: Facts, version: str, pinned: bool) -> None:
    """OpenRLHF asks for page-locked offload buffers since 0.1.5, whatever the user sets."""
    launch = "python3 -m openrlhf.cli.train_ppo_ray --zero_stage 2 --adam_offload\n"
    assert facts({"pip-freeze.txt": f"openrlhf=={version}\n", "launch.sh": launch})["offload.pinned"] is pinned


OFFLOAD = "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-{size} --zero_stage {stage} --adam_offload --actor_num_nodes {nodes} --actor_num_gpus_per_node 8 --critic_num_nodes {nodes} --critic_num_gpus_per_node 8 {more}\n"


@pytest.mark.parametrize(
    ("size", "stage", "nodes", "more"), [("72B", 3, 4, ""), ("7B", 2, 1, ""), ("7B", 3, 1, "--grad_accum_dtype fp32")]
)
def test_offload_takes_what_the_budget_says(
    facts: Facts, tmp_path: Path, size: str, stage: int, nodes: int, more: str
) -> None:
    """The bytes of offload are those of `doctor estimate`, with the release's rounding of pinned buffers and its type of gradients.

    What the node has less without offload is a little more: page tables, which belong to no state.
    """
    launch = OFFLOAD.format(size=size, stage=stage, nodes=nodes, more=more)
    found = facts({"launch.sh": launch, "pip-freeze.txt": "openrlhf==0.5.4\n"})
    with_it = estimate([str(tmp_path)])
    (tmp_path / "launch.sh").write_text(launch.replace("--adam_offload ", ""))
    without = estimate([str(tmp_path)])
    frees = with_it.of("host", "update") - without.of("host", "update")
    assert found["frees.optimizer_bytes"] == frees > found["offload.need_bytes"] > 0.97 * frees
    assert ("frees.gradients_bytes" in found) == bool(more)


def test_offloaded_states_while_their_owner_sleeps(facts: Facts) -> None:
    """They lie in host memory with --deepspeed_enable_sleep, too, so that offload frees little and needs as much."""
    launch = OFFLOAD.format(size="7B", stage=3, nodes=1, more="{}")
    plain = facts({"launch.sh": launch.format(""), "pip-freeze.txt": "openrlhf==0.8.11\n"})
    sleeps = facts({"launch.sh": launch.format("--deepspeed_enable_sleep --colocate_all_models"), "pip-freeze.txt": "openrlhf==0.8.11\n"})
    assert sleeps["offload.need_bytes"] > 0.9 * plain["offload.need_bytes"]
    assert sleeps["frees.optimizer_bytes"] < 0.5 * sleeps["offload.need_bytes"]


def test_states_on_a_gpu_are_the_budgets(facts: Facts, tmp_path: Path) -> None:
    """What the actor holds on one GPU against its size, as the failing allocation tells it."""
    log = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.00 GiB of which 1.00 GiB is free. Of the allocated memory 60.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n"
    found = facts(
        {
            "launch.sh": OFFLOAD.format(size="7B", stage=3, nodes=1, more="").replace("--adam_offload ", ""),
            "driver.log": log,
            "pip-freeze.txt": "openrlhf==0.5.4\n",
        }
    )
    needs = [
        need
        for need in estimate([str(tmp_path)]).needs
        if need.place == "gpu" and need.role == "actor" and not need.transient and not need.at_longest
    ]
    assert found["gpu.states_ratio"] == sum(need.bytes for need in needs) / (79 << 30)


def test_slope_per_step(facts: Facts) -> None:
    """Host memory that the framework logs gives a slope per step."""
    log = "".join(f"step:{n} - perf/cpu_memory_used_gb:{100 + 2 * n}.0\n" for n in range(1, 12))
    found = facts({"driver.log": log})
    assert (found["host.slope_bytes_per_step"], found["host.rising_steps_ratio"]) == (2 * GIB, 1.0)


def test_settings_in_force_are_those_of_the_single_question(tmp_path: Path) -> None:
    """All settings at once and one by one give the same: files before dumps, later before earlier."""
    (tmp_path / "launch.sh").write_text("python3 -m openrlhf.cli.train_ppo_ray --zero_stage 2 --bf16 --zero_stage 3\n")
    (tmp_path / "driver.log").write_text(
        "Error executing job with overrides: ['data.train_batch_size=16', 'data.train_batch_size=32']\n"
    )
    with Session([str(tmp_path)]) as session:
        case = session.case
    assert case.in_force() == {name: case.setting(name) for name in {s.name for s in case.settings}}
