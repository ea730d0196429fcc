"""Settings that the layouts of several frameworks read: lengths, resume, swap blocks, object store."""

from __future__ import annotations

from typing import Any

from packaging.version import Version

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.settings.spell import parse_version
from rlhfdoctor.units import GIB

SWAP_GIB = 4
"""vLLM's default swap_space, allocated up to 0.7."""
BYTES_PER_TOKEN = 48
"""Of an experience in the object store: four int64 and four fp32 tensors."""


def actor_shape(inputs: Inputs, *names: str) -> Shape:
    """The policy's shape: by the files, else by --model.

    Raises:
        UsageError: it is unknown from both.
    """
    shape = inputs.given_shape() or inputs.shape(*names, of=say("the actor"))
    if shape is None:
        raise UsageError(
            say("no model in the files ({names:, }); add --model, such as --model Qwen2.5-7B", names=names[:2])
        )
    return shape


def read_lengths(inputs: Inputs) -> tuple[int, int]:
    """Prompt and response tokens at their longest."""
    total = inputs.value("max_total_length")
    prompt, answer = inputs.count("max_prompt_length", default=1024), inputs.count("max_response_length", default=1024)
    if isinstance(total, int) and "max_prompt_length" not in inputs.settings and "max_total_length" in inputs.settings:
        return max(total - answer, total // 2), min(answer, total)
    return prompt, answer


def read_sub_groups(inputs: Inputs) -> dict[str, Any]:
    """How stage 3 cuts its shards, and the share of them that an offload keeps on the host."""
    size = inputs.number("zero.sub_group_size", default=1e9)
    return {"ratio": inputs.number("offload_optimizer.ratio", default=1.0), "sub_group": max(int(size), 1)}


def read_resume(inputs: Inputs, *, launched: bool = True) -> dict[str, Any]:
    """Whether the run resumes from DeepSpeed's files, and how they are read.

    DeepSpeed runtime/engine.py `_load_zero_checkpoint` at 0.10.1 to 0.19.5: with pipeline_loading_checkpoint a rank
    waits for the one before it, in a receive that blocks a GPU's process only if it has to create a communicator first.

    Args:
        launched: a launcher gives every rank of a node its own LOCAL_RANK.
    """
    own = inputs.settings.get("checkpoint.resume")
    if own is not None and isinstance(own.value, str) and "$" in own.value:
        inputs.assume(say("it resumes from {path}, an unresolved shell variable", path=own.value))
    else:
        value = inputs.value("checkpoint.resume")
        if not value or str(value).lower() in ("false", "none", "null"):
            return {"launched": launched}
    reads = "shards"
    if inputs.flag("checkpoint.load_universal"):
        reads = "universal"
        inputs.assume(say("the universal checkpoint was made of as many ranks as there are now"))
    elif inputs.flag("zero.pipeline_loading_checkpoint") and not inputs.before("deepspeed", "0.10.1"):
        if _waits(inputs):
            reads = "in turn"
        else:
            inputs.assume(
                say(
                    "pipeline_loading_checkpoint is assumed to keep no rank on a GPU waiting; from DeepSpeed 0.17.3 on "
                    "it depends on torch"
                )
            )
    return {"resumes": True, "reads": reads, "launched": launched}


def _waits(inputs: Inputs) -> bool:
    """Whether a receive keeps its process waiting, as far as it is known.

    Since 0.17.3 DeepSpeed names the device to torch (comm/torch.py), except for torch after 2.6.0 and before 2.7.1;
    newer ones may then use the communicator that is there already, and which of them do was not found out.
    """
    torch = parse_version(inputs.version("torch"))
    return (
        inputs.machine.gpus_per_node == 0
        or inputs.before("deepspeed", "0.17.3")
        or (torch is not None and Version("2.6.0") < torch < Version("2.7.1"))
    )


def find_swap(inputs: Inputs) -> int:
    """Bytes of swap blocks per GPU: allocated by vLLM up to 0.7 only."""
    if not inputs.before("vllm", "0.8"):
        return 0
    return int(inputs.number("rollout.swap_space", default=SWAP_GIB) * GIB)


def find_file_size(inputs: Inputs) -> int:
    """Bytes that a Hugging Face save copies at once: a file's worth.

    safetensors turns it into bytes before it writes.

    safetensors 0.3.1 to 0.7.0 (torch.py, `_tobytes`; measured, 750 to 800 of 800 MiB), no more in 0.8.0; transformers
    writes safetensors since 4.35, in files of 5 GB, since 5.0 of 50 GB (modeling_utils.py, `save_pretrained`).
    """
    if inputs.before("transformers", "4.35") or (
        inputs.version("safetensors") and not inputs.before("safetensors", "0.8")
    ):
        return 0
    return (50 if inputs.version("transformers") and not inputs.before("transformers", "5.0") else 5) * 10**9


def find_store(inputs: Inputs) -> int | None:
    """Bytes of Ray's object store, if set."""
    value = inputs.value("ray.object_store_memory")
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
