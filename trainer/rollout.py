"""Rollouts beside `generate`: vLLM as an engine of its own, with the host swap blocks of older engines."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlhfdoctor import marks
from trainer.config import Config
from trainer.pinned import empty_pinned

GIB = 1 << 30


class SwapBlocks:
    """Page-locked host blocks for the KV cache, one buffer a layer, as vLLM's V0 engine allocates them.

    vLLM up to 0.7 (worker/cache_engine.py, `_allocate_kv_cache(num_cpu_blocks, "cpu")`) takes `swap_space` GiB at
    start, zeroed, one pinned tensor a layer, and each is rounded up to a power of two. Forks that drop the cache engine
    after every rollout (`free_cache_engine`) rebuild them before the next one. Here they are sized for the prompts of
    the rollout, so one with longer prompts asks for larger blocks, while the pinned allocator keeps those that it has.
    This engine never preempts: the blocks are only held, as they are in a vLLM that never preempts.
    """

    def __init__(self, config: Config, shape: Any) -> None:
        self.limit_bytes = int(config.rollout.swap_space * GIB)
        self.free = config.rollout.free_cache_engine
        self.layers = shape.num_hidden_layers
        self.longest = config.data.max_prompt_length + config.data.max_response_length
        self.blocks: list[Tensor] = []

    @contextlib.contextmanager
    def held(self, tokens: int) -> Iterator[None]:
        """Blocks for one rollout whose longest sequence has this many tokens."""
        if self.limit_bytes and not self.blocks:
            layer_bytes = self.limit_bytes * min(tokens, self.longest) // self.longest // self.layers
            self.blocks = [empty_pinned((layer_bytes,), torch.uint8).zero_() for _ in range(self.layers)]
        yield
        if self.free:
            self.blocks = []


# --- vLLM --------------------------------------------------------------------------------------

_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the engine's core stays in this process: one process to account for
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
_ON_CPU = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_CI_ENV": "1",
    # these three: the first batch of 0.32 compiles for 20 s otherwise, enforce_eager or not
    "TORCH_COMPILE_DISABLE": "1",
    "TORCHDYNAMO_DISABLE": "1",
}


class VLLMEngine:
    """A process with one vLLM engine: token ids in, token ids out."""

    def __init__(self, config: Config) -> None:
        marks.role("rollout engine")
        on_gpu = torch.cuda.is_available()
        os.environ.update(_ENVIRONMENT if on_gpu else _ENVIRONMENT | _ON_CPU)
        from vllm import LLM

        from trainer.engine import load_tokenizer

        self.config = config
        self.eos, self.pad = load_tokenizer(config).eos_token_id, load_tokenizer(config).pad_token_id
        limits: dict[str, Any] = {"kv_cache_memory_bytes": int(config.rollout.kv_cache_gib * GIB)}
        if on_gpu:
            limits = {
                "gpu_memory_utilization": config.rollout.gpu_memory_utilization,
                "enable_sleep_mode": config.rollout.sleep,
            }
        with marks.phase("load", step=0), tempfile.TemporaryDirectory() as folder:
            self.llm = LLM(
                model=config.model.path or _empty_model(config, Path(folder)),
                load_format="auto" if config.model.path else "dummy",
                skip_tokenizer_init=True,
                enforce_eager=True,
                dtype=config.model.dtype,
                seed=config.train.seed,
                max_model_len=config.data.max_prompt_length + config.data.max_response_length,
                max_num_seqs=config.rollout.micro_batch_size * config.cluster.world_size,
                **limits,
            )
        self.can_sleep = on_gpu and config.rollout.sleep

    def generate(self, prompts: list[list[int]], step: int) -> Tensor:
        """Responses, (B, max_response_length), padded after end-of-text."""
        from vllm import SamplingParams

        most = self.config.data.max_response_length
        sampling = SamplingParams(
            temperature=self.config.rollout.temperature, max_tokens=most, stop_token_ids=[self.eos], detokenize=False
        )
        with marks.phase("rollout", step=step):
            answers = self.llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], sampling, use_tqdm=False)
        response_BA = torch.full((len(prompts), most), self.pad, dtype=torch.long)
        for row, answer in zip(response_BA, answers, strict=True):
            tokens = torch.tensor(answer.outputs[0].token_ids)
            row[: len(tokens)] = tokens
        return response_BA

    def load(self, weights: dict[str, Tensor], step: int) -> None:
        """Takes over the trained weights; cached prefixes belong to the old ones and are dropped."""
        with marks.phase("weight_sync", step=step):
            if self.can_sleep and self.llm.llm_engine.is_sleeping():
                self.llm.wake_up()
            self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": iter(weights.items())})
            self.llm.apply_model(_pack_tied_head)
            self.llm.reset_prefix_cache()

    def sleep(self) -> None:
        """Gives weights and KV cache up until the next `load`; only where the platform can (0.32: not on CPUs)."""
        if self.can_sleep:
            self.llm.sleep(
                level=self.config.rollout.sleep_level
            )  # at 2 no copy in host memory: the trainer sends weights anyway


def _pack_tied_head(model: Any) -> None:
    """vLLM 0.32 on CPU packs a second copy of each linear layer; `reload_weights` renews all but a tied lm_head's.

    Without this the logits are those of the old weights, and nothing says so.
    """
    head = getattr(model, "lm_head", None)
    if head is not None and model.config.tie_word_embeddings and hasattr(head, "cpu_linear"):
        head.tie_weights(model.model.embed_tokens)
        head.quant_method.process_weights_after_loading(head)


def _empty_model(config: Config, folder: Path) -> str:
    """A folder with the configuration only; the weights come with the first `load`."""
    from trainer.engine import model_config

    shape = model_config(config)
    shape.architectures = ["Qwen2ForCausalLM"]
    shape.save_pretrained(folder)
    return str(folder)


class Engine:
    """The driver's side of a vLLM engine."""

    def __init__(self, handle: Any) -> None:
        self.handle, self.step = handle, 0

    def generate(self, batch: dict[str, Any]) -> dict[str, Tensor]:
        """Responses to the prompts, (B, max_response_length); then the engine sleeps, if it may."""
        import ray

        prompts = [
            row[mask > 0].tolist() for row, mask in zip(batch["prompt_BP"], batch["prompt_mask_BP"], strict=True)
        ]
        response_BA = ray.get(self.handle.generate.remote(prompts, self.step))
        self.handle.sleep.remote()
        return {"response_BA": response_BA}

    def sync(self, actor: Any, step: int = 0) -> None:
        """The actor's weights into the engine: gathered on its rank 0, through Ray's object store."""
        import ray

        self.step = step + 1
        weights = next(found for found in actor.all("weights") if found is not None)
        ray.get(self.handle.load.remote(ray.put(weights), step))


def start_engine(config: Config, placement: Any) -> Engine:
    """A vLLM engine in the placement group's last bundle."""
    import ray
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    strategy = PlacementGroupSchedulingStrategy(placement, placement_group_bundle_index=config.cluster.world_size)
    share = {"num_gpus": 1} if ray.cluster_resources().get("GPU", 0) else {}
    handle = ray.remote(VLLMEngine).options(num_cpus=1, scheduling_strategy=strategy, **share).remote(config)
    return Engine(handle)
