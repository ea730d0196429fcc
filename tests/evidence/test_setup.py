"""Recomputation, mixtures of experts, compilers and regressions: what the setup itself tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rlhfdoctor.types import Value

Facts = Callable[[Mapping[str, str]], dict[str, Value]]
TIMEOUT = (
    "[rank1]:[E1203 11:27:45.310468221 ProcessGroupNCCL.cpp:607] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600038 milliseconds before timing out.\n"
)
SCRIPT = (
    "python3 -m openrlhf.cli.train_ppo_ray --pretrain {model} --zero_stage 3 --micro_train_batch_size 2 --bf16 {more}\n"
)


def openrlhf(version: str, model: str = "meta-llama/Llama-3.1-8B", more: str = "") -> dict[str, str]:
    """A launch script and a list of packages."""
    return {"launch.sh": SCRIPT.format(model=model, more=more), "pip-freeze.txt": f"openrlhf=={version}\n"}


def test_recompute_by_default_and_by_flag(facts: Facts) -> None:
    """OpenRLHF's default is off; a flag wins."""
    assert facts(openrlhf("0.8.4"))["config.recompute"] is False
    assert facts(openrlhf("0.8.4", more="--gradient_checkpointing"))["config.recompute"] is True


def test_recompute_is_unknown_without_the_configuration(facts: Facts) -> None:
    """A default says nothing where the user's own lines are not at hand."""
    assert "config.recompute" not in facts(
        {"pip-freeze.txt": "openrlhf==0.8.4\n", "driver.log": "(LLMRayActor pid=7) hello\n" * 5}
    )


@pytest.mark.parametrize(
    ("model", "experts"),
    [
        ("Qwen/Qwen3-30B-A3B", True),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", True),
        ("deepseek-ai/DeepSeek-V3", True),
        ("openai/gpt-oss-20b", True),
        ("deepseek-ai/DeepSeek-R1", True),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", None),
        ("Qwen/Qwen3-32B", None),
        ("meta-llama/Llama-3.1-8B", None),
        ("/models/Qwen1.5-MoE-A2.7B", True),
    ],
)
def test_experts_by_the_model_s_name(model: str, experts: bool | None, facts: Facts) -> None:
    """Distilled models are dense whatever they are distilled from."""
    assert facts(openrlhf("0.8.4", model)).get("config.experts") is experts


def test_experts_by_class(facts: Facts) -> None:
    """A class name in a traceback tells as well."""
    assert (
        facts({"driver.log": '  File "/opt/m/modeling.py", line 3, in Qwen3MoeSparseMoeBlock\n'})["config.experts"]
        is True
    )


TABLE = "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name\n"
CICC = TABLE + "[ 7]     0   7  2000  1000  4096  0  0 cicc\n"


@pytest.mark.parametrize(
    ("packages", "log", "name", "known"),
    [
        ("vllm==0.7.3", "", "regression.host_growth", True),
        ("vllm==0.6.3", "", "regression.host_growth", None),
        ("vllm==0.8.4", "", "regression.host_growth", None),
        ("vllm==0.7.3\nopenrlhf==0.6.1", "", "regression.host_growth", None),
        ("vllm==0.28.0", CICC, "regression.compile", True),
        ("vllm==0.28.0", "", "regression.compile", None),
        ("vllm==0.27.1", CICC, "regression.compile", None),
        ("vllm==0.7.3", CICC, "regression.host_growth", None),
        ("nvidia-nccl-cu12==2.29.2", TIMEOUT, "regression.hang", True),
        ("nvidia-nccl-cu12==2.29.2", "", "regression.hang", None),
        ("nvidia-nccl-cu13==2.29.3", TIMEOUT, "regression.hang", None),
    ],
)
def test_known_releases(packages: str, log: str, name: str, known: bool | None, facts: Facts) -> None:
    """A release within the bounds, whose symptom the log could show, and a framework that uses what is broken."""
    assert facts({"pip-freeze.txt": packages + "\n", "dmesg.txt": log or "\n"}).get(name) is known


def test_nccl_release_by_its_banner(facts: Facts) -> None:
    """NCCL names itself in the log."""
    assert (
        facts({"driver.log": "node01:12:34 [0] NCCL INFO NCCL version 2.29.2+cuda12.9\n" + TIMEOUT}).get(
            "regression.hang"
        )
        is True
    )


def test_compilers_in_the_kernel_s_table(facts: Facts) -> None:
    """Every compiler process counts."""
    rows = "".join(
        f"[ {n}]     0   {n}  2000  1000  4096  0  0 {name}\n" for n, name in ((7, "cicc"), (8, "ptxas"), (9, "python"))
    )
    assert facts({"dmesg.txt": TABLE + rows})["kernel.compiler_count"] == 2


def steps(used: list[float], lengths: list[float] | None = None) -> str:
    """verl's metrics, a line a step."""
    rows = []
    for number, size in enumerate(used):
        length = f"response_length/mean:{lengths[number]} - " if lengths else ""
        rows.append(f"(TaskRunner pid=1) step:{number + 1} - {length}perf/max_memory_allocated_gb:{size}\n")
    return "".join(rows)


def test_gpu_growth(facts: Facts) -> None:
    """Two steps warm up; the slope is over the rest."""
    found = facts({"driver.log": steps([10, 20, 30, 32, 34, 36], [5, 5, 6, 5, 6, 5])})
    assert (found["gpu.slope_bytes_per_step"], found["gpu.rising_steps_ratio"]) == (2 * 1024**3, 1.0)
    assert found["gpu.lengths_ratio"] == pytest.approx(5 / 6)


def test_zigzag_of_lengths_is_growth(facts: Facts) -> None:
    """Noise between steps does not hide that responses got longer; the longest count where they are logged."""
    found = facts({"driver.log": steps([10, 20, *range(30, 54, 2)], [5, 5, 6, 4, 7, 6, 9, 7, 11, 9, 13, 11, 14, 13])})
    assert found["gpu.lengths_ratio"] > 1.5


@pytest.mark.parametrize("figure", ["1.2.3", "...", ".", "9" * 400, "0." + "1" * 400])
def test_lengths_that_are_no_figures(facts: Facts, figure: str) -> None:
    """They say nothing; what else the lines say is read."""
    text = steps([10, 20, 30, 32, 34, 36], [5, 5, 6, 5, 6, 5]).replace("mean:6", f"mean:{figure}")
    found = facts({"driver.log": text})
    assert found["gpu.rising_steps_ratio"] == 1.0 and "gpu.lengths_ratio" not in found


def test_gpu_growth_wants_some_steps(facts: Facts) -> None:
    """Fewer than six lines say nothing."""
    assert "gpu.slope_bytes_per_step" not in facts({"driver.log": steps([10, 20, 30, 32, 34])})


def test_checkpoint_that_outlasts_the_limit(facts: Facts) -> None:
    """A stack in the save, or a save as the last thing begun."""
    assert (
        facts({"a.log": TIMEOUT, "dump.txt": "    save_checkpoint (verl/utils/ckpt.py:20)\n"})["comm.in_checkpoint"]
        is True
    )
    assert (
        facts({"a.log": "Saving model checkpoint to /nfs/step-10\n" + TIMEOUT, "dump.txt": "\n"})[
            "comm.checkpoint_phase"
        ]
        is True
    )


def test_bar_that_ran_as_long_as_the_limit(facts: Facts) -> None:
    """Minutes of the bar against the limit; a bar that never moved is no work."""
    assert (
        facts({"a.log": " 50%|#####     | 5/10 [08:30<08:30, 51.0s/it]\n" + TIMEOUT}).get("comm.busy_to_timeout")
        is None
    )  # below nine minutes
    assert facts({"a.log": " 50%|#####     | 5/10 [10:30<10:30, 63.0s/it]\n" + TIMEOUT})[
        "comm.busy_to_timeout"
    ] == pytest.approx(1.05)
    assert "comm.busy_to_timeout" not in facts({"a.log": "  0%|          | 0/10 [10:04<?, ?it/s]\n" + TIMEOUT})


@pytest.mark.parametrize(
    "text",
    [
        " 50%|#####     | 50/1000 [31:00<22:09:12, 84s/it]\n" + TIMEOUT.replace("600", "1800"),
        " 50%|#####     | 5/10 [10:30<10:30, 63.0s/it]\n" + "(TaskRunner pid=1) step:3 - a:1\n" + TIMEOUT,
        " 50%|#####     | 5/10 [10:30<10:30, 63.0s/it]\n" + "hello\n" * 90 + TIMEOUT,
    ],
    ids=["the training", "steps behind it", "long before"],
)
def test_bars_of_other_work(text: str, facts: Facts) -> None:
    """The bar of the training, one that steps followed, one far above the report."""
    assert "comm.busy_to_timeout" not in facts({"a.log": text})


def test_checkpoint_that_steps_followed(facts: Facts) -> None:
    """A save at step 50 is not the last thing begun at step 80."""
    text = "Saving model checkpoint to /nfs/step-10\n" + "(TaskRunner pid=1) step:11 - a:1\n" + TIMEOUT
    assert "comm.checkpoint_phase" not in facts({"a.log": text})


def test_pinning_is_a_site_of_its_own(facts: Facts) -> None:
    """CUDA errors out of pin_memory are not the GPU's allocator."""
    text = '  File "/x/torch/utils/data/_utils/pin_memory.py", line 98, in pin_memory\nRuntimeError: CUDA error: out of memory\n'
    assert facts({"driver.log": text})["cuda.site"] == "pin"
    loader = '  File "/opt/train.py", line 9, in main\n    loader = DataLoader(data, pin_memory=True)\nRuntimeError: CUDA error: out of memory\n'
    assert facts({"other.log": loader, "driver.log": "\n"}).get("cuda.site") != "pin"
