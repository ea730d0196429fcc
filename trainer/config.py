"""The configuration: one dataclass a section, read from a YAML file, then `section.key=value` words.

DeepSpeed's own settings are in a JSON file beside the YAML (`deepspeed: zero3-offload.json`), written with DeepSpeed's
names, so that what is known about DeepSpeed holds here as well. What depends on the run (micro batch, gradient
accumulation, data types) is filled in by `trainer/engine.py`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

try:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException
except ModuleNotFoundError:
    raise SystemExit("the trainer needs more than the doctor: pip install 'rlhfdoctor[trainer]'") from None


class ConfigError(Exception):
    """A setting that cannot work, said in one line with what to change."""


@dataclass
class Model:
    path: str | None = None
    """Folder of a Hugging Face causal LM; None: a Qwen2 of the sizes below with random weights, and bytes as tokens."""
    hidden_size: int = 256
    num_layers: int = 4
    num_heads: int = 4
    vocab_size: int = 260
    """Rows of the embedding; 260 are used, more are padding (and make a large model that computes little)."""
    dtype: str = "float32"
    """float32 or bfloat16: weights, activations and (unless set otherwise) gradients."""
    gradient_checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them."""


@dataclass
class Data:
    task: str = "trainer.data:character_classes"
    """`module:function` that yields (prompt, answer) pairs, or returns a sequence of them."""
    num_prompts: int = 4096
    max_prompt_length: int = 32
    """Tokens; longer prompts are cut at the left."""
    max_response_length: int = 16
    """Tokens that the policy may write."""
    num_workers: int = 0
    """Processes of the data loader; each holds its share of the data set."""
    drop_last: bool = True
    """Leave out a last batch that is too small for all ranks."""


@dataclass
class Rollout:
    backend: str = "hf"
    """hf: `generate` of transformers on the weights that are trained; vllm: an engine of its own."""
    batch_size: int = 32
    """Prompts a step."""
    samples_per_prompt: int = 1
    micro_batch_size: int = 16
    """Sequences per rank that are generated, or scored by reference and critic, at once."""
    temperature: float = 1.0
    synced_gpus: bool = True
    """Under ZeRO-3, all ranks go on until the last one has finished: every forward gathers weights from all ranks."""
    swap_space: float = 0.0
    """GiB of page-locked host blocks for the KV cache, one buffer a layer (as vLLM up to 0.7 has them); hf only."""
    free_cache_engine: bool = False
    """Drop the swap blocks after each rollout and build them again before the next one."""
    sleep: bool = False
    """Let the vLLM engine give up weights and KV cache while the trainer works, where the platform can."""
    sleep_level: int = 2
    """1: vLLM keeps a page-locked copy of its weights in host memory; 2: it drops them until the next sync."""
    kv_cache_gib: float = 0.25
    """KV cache of the vLLM engine on CPU, in GiB; on GPUs `gpu_memory_utilization` decides."""
    gpu_memory_utilization: float = 0.4


@dataclass
class Reward:
    function: str = "trainer.data:share_in_class"
    """`module:function`: (response, answer) -> score; run in the actor's ranks or in the reward workers."""
    num_workers: int = 0
    """Processes that run the function; 0: the actor's ranks run it themselves."""
    normalize: bool = False
    """Divide scores by their standard deviation over all ranks."""


@dataclass
class Algorithm:
    gamma: float = 1.0
    lam: float = 0.95
    clip: float = 0.2
    value_clip: float = 0.2
    kl_coef: float = 0.01
    kl: str = "k1"
    """k1 or k3, see ppo.kl_of."""
    entropy_coef: float = 0.0
    whiten_advantages: bool = True
    epochs: int = 1
    """Passes over a step's batch."""


@dataclass
class Train:
    steps: int = 40
    """PPO iterations: rollout, scores, update."""
    mini_batch_size: int = 32
    """Sequences over all ranks per optimizer step."""
    micro_batch_size: int = 8
    """Sequences per rank and forward pass; gradients accumulate up to the mini batch."""
    lr: float = 1e-3
    critic_lr: float = 2e-3
    grad_accum_dtype: str | None = None
    """fp32 or bf16: what gradients accumulate in; None: as the model."""
    max_grad_norm: float = 1.0
    seed: int = 0
    callback: str | None = None
    """`module:function`, called by the driver after each step as f(step, experience, metrics)."""


@dataclass
class Checkpoint:
    folder: str = "checkpoints"
    save_steps: int = 0
    """Save every that many steps; 0: never."""
    save_hf: bool = False
    """Also gather the weights on rank 0 and save them in Hugging Face's form."""
    in_memory: bool = False
    """Serialise DeepSpeed's files of all roles in memory, and write them when all are complete; weights and states are
    in memory twice meanwhile. Either way a checkpoint counts from the moment when `latest` names it, after all ranks
    wrote."""
    resume: bool = False
    """Go on from the newest checkpoint in the folder, if there is one."""


@dataclass
class Cluster:
    world_size: int = 2
    """Ranks of every trained role."""
    placement: str = "fused"
    """fused: one process a rank holds actor, critic and reference (verl); separate: one process each (OpenRLHF)."""
    collective_timeout: float = 600.0
    """Seconds that a rank waits for the others in a collective."""
    threads: int = 1
    """CPU threads of a rank."""
    num_cpus: int | None = None
    """CPUs that Ray is given, if the trainer starts it; None: all. Ray keeps as many idle workers in memory."""
    object_store_memory: int | None = None
    """Bytes of Ray's object store; None: Ray's default."""
    address: str | None = None
    """Ray cluster to join; None: the one of RAY_ADDRESS, or a new one on this machine."""


@dataclass
class Config:
    deepspeed: str = ""
    """DeepSpeed JSON; a relative path counts from the YAML file's folder."""
    out: str = "runs/ppo"
    """Folder of metrics and checkpoints."""
    model: Model = field(default_factory=Model)
    data: Data = field(default_factory=Data)
    rollout: Rollout = field(default_factory=Rollout)
    reward: Reward = field(default_factory=Reward)
    algorithm: Algorithm = field(default_factory=Algorithm)
    train: Train = field(default_factory=Train)
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    cluster: Cluster = field(default_factory=Cluster)

    @property
    def sequences_per_step(self) -> int:
        return self.rollout.batch_size * self.rollout.samples_per_prompt

    @property
    def checkpoints(self) -> Path:
        return Path(self.out, self.checkpoint.folder)

    def zero(self) -> dict[str, Any]:
        """The DeepSpeed JSON as it was written."""
        return read_deepspeed(Path(self.deepspeed)) if self.deepspeed else {"zero_optimization": {"stage": 0}}


def read_deepspeed(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"deepspeed: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"deepspeed: {path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ConfigError(f"deepspeed: {path} is not a JSON object")
    return found


def read_config(file: Path | None, words: list[str]) -> Config:
    """The defaults, then the YAML file, then `key=value` words; unknown keys and wrong types are errors.

    Raises:
        ConfigError: with the key, and what would be right.
    """
    merged = OmegaConf.structured(Config)
    try:
        if file is not None:
            merged = OmegaConf.merge(merged, OmegaConf.load(file))
        for word in words:
            if "=" not in word:
                raise ConfigError(f"{word!r} is not of the form section.key=value")
        for word in words:
            try:
                merged = OmegaConf.merge(merged, OmegaConf.from_dotlist([word]))
            except yaml.YAMLError:
                raise ConfigError(f"{word!r}: what stands behind = is no YAML") from None
        config = OmegaConf.to_object(merged)
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror or error}") from None
    except OmegaConfBaseException as error:
        raise ConfigError(" ".join(str(error).split("\n")[:1]) + _where(error)) from None
    except Exception as error:  # PyYAML's many ways to refuse a file
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"{file}: {' '.join(str(error).split())}") from None
    assert isinstance(config, Config)
    if config.deepspeed and not Path(config.deepspeed).is_absolute() and file is not None:
        beside = file.parent / config.deepspeed
        config.deepspeed = str(beside if beside.exists() else Path(config.deepspeed))
    check(config)
    return config


def _where(error: OmegaConfBaseException) -> str:
    key = getattr(error, "full_key", None)
    return f" (at {key})" if key else ""


def check(config: Config) -> None:
    """What would fail hours later, or silently do something else, fails here."""
    ranks, train, rollout = config.cluster.world_size, config.train, config.rollout
    for name, value in (
        ("cluster.world_size", ranks),
        ("train.mini_batch_size", train.mini_batch_size),
        ("train.micro_batch_size", train.micro_batch_size),
        ("rollout.batch_size", rollout.batch_size),
        ("rollout.samples_per_prompt", rollout.samples_per_prompt),
        ("rollout.micro_batch_size", rollout.micro_batch_size),
        ("rollout.temperature", rollout.temperature),
        ("algorithm.epochs", config.algorithm.epochs),
        ("data.max_prompt_length", config.data.max_prompt_length),
        ("train.steps", train.steps),
        ("data.max_response_length", config.data.max_response_length),
        ("model.num_heads", config.model.num_heads),
        ("cluster.collective_timeout", config.cluster.collective_timeout),
    ):
        if value <= 0:
            raise ConfigError(f"{name} is {value}; it must be above 0")
    if config.model.path is None and config.model.hidden_size % (2 * config.model.num_heads):
        raise ConfigError(
            f"model.hidden_size {config.model.hidden_size} is not a multiple of 2 x model.num_heads "
            f"{config.model.num_heads}"
        )
    for name, value, allowed in (
        ("model.dtype", config.model.dtype, ("float32", "bfloat16")),
        ("rollout.backend", rollout.backend, ("hf", "vllm")),
        ("algorithm.kl", config.algorithm.kl, ("k1", "k3")),
        ("cluster.placement", config.cluster.placement, ("fused", "separate")),
        ("train.grad_accum_dtype", train.grad_accum_dtype, (None, "fp32", "bf16")),
    ):
        if value not in allowed:
            raise ConfigError(f"{name} is {value!r}; allowed: {', '.join(str(word) for word in allowed)}")
    if train.mini_batch_size % (ranks * train.micro_batch_size):
        raise ConfigError(
            f"train.mini_batch_size {train.mini_batch_size} is not a multiple of cluster.world_size {ranks} "
            f"x train.micro_batch_size {train.micro_batch_size}"
        )
    if config.sequences_per_step % train.mini_batch_size:
        raise ConfigError(
            f"rollout.batch_size x samples_per_prompt = {config.sequences_per_step} is not a multiple of "
            f"train.mini_batch_size {train.mini_batch_size}"
        )
    if config.data.num_prompts < rollout.batch_size:
        raise ConfigError(
            f"data.num_prompts {config.data.num_prompts} is below rollout.batch_size {rollout.batch_size}"
        )
    if rollout.backend == "vllm" and rollout.swap_space:
        raise ConfigError("rollout.swap_space is a setting of the hf backend; vLLM dropped it in 0.18")
    zero = config.zero().get("zero_optimization")
    stage = zero.get("stage") if isinstance(zero, dict) else None
    if stage not in (0, 1, 2, 3):
        raise ConfigError(f"deepspeed: zero_optimization.stage is {stage!r}; allowed: 0, 1, 2, 3")
    if stage == 0 and config.model.dtype == "bfloat16" and train.grad_accum_dtype == "fp32":
        raise ConfigError("train.grad_accum_dtype fp32 with bfloat16 weights needs ZeRO stage 1 or more in DeepSpeed")
