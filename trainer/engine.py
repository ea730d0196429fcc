"""What one rank computes with: models, process groups, DeepSpeed engines."""

from __future__ import annotations

import datetime
import io
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from trainer.config import Config, ConfigError
from trainer.data import ByteTokenizer, Tokenizer


def start_distributed(rank: int, world_size: int, address: str, port: int, config: Config) -> None:
    """Joins the ranks of one group of processes: NCCL on GPUs, gloo on CPUs.

    The timeout is given to the process group itself; DeepSpeed's own default is 30 min to 0.19.5, 10 min from 0.19.6.
    """
    # DeepSpeed compiles its CPU Adam at first use; another ninja than this environment's would build it again each
    # time.
    os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        torch.set_num_threads(config.cluster.threads)
    local_rank = 0 if torch.cuda.is_available() else rank  # Ray gives every actor the one GPU that it sees
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
    }
    warnings.filterwarnings(
        "ignore", category=FutureWarning, module=r"torch\.distributed"
    )  # DeepSpeed uses names that torch renames
    import deepspeed

    from trainer import pinned

    pinned.install()
    deepspeed.init_distributed(
        dist_backend="nccl" if torch.cuda.is_available() else "gloo",
        timeout=datetime.timedelta(seconds=config.cluster.collective_timeout),
    )


# --- models ------------------------------------------------------------------------------------


class ValueHead(nn.Linear):
    """Hidden state -> value; weights of 0, so that the first advantages are the rewards themselves."""

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.weight)
        nn.init.zeros_(self.bias)


class ValueModel(nn.Module):
    """The critic: a transformer's last hidden state under a linear head."""

    def __init__(self, backbone: nn.Module, hidden_size: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.backbone = backbone
        self.value_head = ValueHead(hidden_size, 1, dtype=dtype)

    def forward(self, tokens_BT: Tensor, attention_BT: Tensor) -> Tensor:
        """Value of each prefix, float32, (B, T)."""
        hidden = self.backbone(
            tokens_BT, attention_mask=attention_BT, position_ids=positions_of(attention_BT), use_cache=False
        ).last_hidden_state
        values_BT: Tensor = self.value_head(hidden).squeeze(-1).float()
        return values_BT

    def gradient_checkpointing_enable(self, **options: Any) -> None:
        self.backbone.gradient_checkpointing_enable(**options)


def load_tokenizer(config: Config) -> Tokenizer:
    if config.model.path is None:
        return ByteTokenizer()
    from transformers import AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(config.model.path)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    size = model_config(config).vocab_size
    if tokenizer.pad_token_id is None or tokenizer.pad_token_id >= size:
        raise ConfigError(
            f"model.path: the tokenizer of {config.model.path} pads with token {tokenizer.pad_token_id}, and the model "
            f"has {size} embeddings; "
            "set pad_token in its tokenizer_config.json to a token below that"
        )
    return tokenizer  # type: ignore[no-any-return]


def model_config(config: Config) -> Any:
    """The Hugging Face configuration of the policy."""
    from transformers import AutoConfig, Qwen2Config

    if config.model.path is not None:
        return AutoConfig.from_pretrained(config.model.path)
    size = config.model
    return Qwen2Config(
        vocab_size=size.vocab_size,
        hidden_size=size.hidden_size,
        intermediate_size=3 * size.hidden_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=size.num_heads,
        num_key_value_heads=max(size.num_heads // 2, 1),
        max_position_embeddings=config.data.max_prompt_length + config.data.max_response_length,
        tie_word_embeddings=True,
        bos_token_id=ByteTokenizer.bos_token_id,
        eos_token_id=ByteTokenizer.eos_token_id,
    )


def make_model(config: Config, zero: dict[str, Any], critic: bool = False) -> nn.Module:
    """The policy or the critic of one role, partitioned over the ranks from the first byte at ZeRO-3.

    Actor and reference get the same weights: from the same files, or from the same seed.
    """
    from transformers import AutoModel, AutoModelForCausalLM

    dtype = getattr(torch, config.model.dtype)
    kind = AutoModel if critic else AutoModelForCausalLM
    shape = model_config(config)
    partitioned = zero["zero_optimization"]["stage"] == 3
    if partitioned:
        from transformers.integrations import HfDeepSpeedConfig

        _kept.append(HfDeepSpeedConfig(zero))  # transformers looks for it while it makes a model, and holds it weakly
    torch.manual_seed(config.train.seed)
    if config.model.path is not None:
        model = kind.from_pretrained(config.model.path, dtype=dtype)
    else:
        model = kind.from_config(shape, dtype=dtype)
    _kept.clear()
    without_dropout(model)
    return ValueModel(model, shape.hidden_size, dtype) if critic else model


_kept: list[object] = []


def without_dropout(model: nn.Module) -> nn.Module:
    """The model with its dropout off: an update must score as the rollout did, or the ratio does not begin at 1."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


# --- DeepSpeed ---------------------------------------------------------------------------------


def deepspeed_config(config: Config, train: bool) -> dict[str, Any]:
    """The user's DeepSpeed JSON with what follows from the run filled in.

    A role that is not trained (the reference) keeps ZeRO-3 with its parameter offload, and no ZeRO below that: there is
    nothing else to partition (as openrlhf/utils/deepspeed/deepspeed_utils.py get_eval_ds_config does).
    """
    given = config.zero()
    zero = dict(given.get("zero_optimization", {"stage": 0}))
    if not train:
        zero = {k: v for k, v in zero.items() if k != "offload_optimizer"} if zero.get("stage") == 3 else {"stage": 0}
    ranks, micro = config.cluster.world_size, config.train.micro_batch_size
    ours = ("train_batch_size", "optimizer", "scheduler")  # made here, or follow from what is made here
    made = {
        **{key: value for key, value in given.items() if key not in ours},
        "zero_optimization": zero,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": config.train.mini_batch_size // (ranks * micro),
        "gradient_clipping": config.train.max_grad_norm,
        "bf16": {**given.get("bf16", {}), "enabled": config.model.dtype == "bfloat16"},
        "steps_per_print": 10**9,
    }
    if train and config.train.grad_accum_dtype is not None:
        made["data_types"] = {"grad_accum_dtype": config.train.grad_accum_dtype}
    return made


def make_engine(model: nn.Module, config: Config, lr: float | None) -> Any:
    """A DeepSpeed engine; without a learning rate one that only runs forward.

    Offloaded states are stepped by DeepSpeedCPUAdam (compiled at first use), others by torch's AdamW, with Adam's
    epsilon of 1e-5 [37 detail 3] and no weight decay.
    """
    import deepspeed

    made = deepspeed_config(config, train=lr is not None)
    if lr is None:
        engine, *_ = deepspeed.initialize(model=model, config=made)
        engine.eval()
        return engine
    if config.model.gradient_checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    settings = {"lr": lr, "eps": 1e-5, "betas": (0.9, 0.95)}
    if made["zero_optimization"].get("offload_optimizer", {}).get("device", "none") != "none":
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        optimizer: Any = DeepSpeedCPUAdam(model.parameters(), **settings)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.0, **settings)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=made)
    if config.checkpoint.in_memory:
        save_in_memory_first(engine)
    return engine


_staged: list[tuple[Path, io.BytesIO]] = []
"""Files of checkpoints that are serialised and not written yet."""


def save_in_memory_first(engine: Any) -> None:
    """Lets an engine's checkpoints be serialised in memory; `write_staged` writes them."""

    def save(state_dict: Any, path: str) -> None:
        buffer = io.BytesIO()
        torch.save(state_dict, buffer)
        _staged.append((Path(path), buffer))

    engine.checkpoint_engine.save = save


def write_staged() -> None:
    """Writes what this process has serialised, and lets it go."""
    for path, buffer in _staged:
        path.write_bytes(buffer.getbuffer())
    _staged.clear()


def full_weights(engine: Any, rank: int) -> Iterator[tuple[str, Tensor]]:
    """Name and whole tensor of every weight, one after the other; only rank 0 gets them at ZeRO-3.

    All ranks must run it to the end, since each gathers its part. A tied weight comes once.
    """
    import deepspeed

    for name, parameter in engine.module.named_parameters():
        partitioned = hasattr(parameter, "ds_id")
        with deepspeed.zero.GatheredParameters([parameter], enabled=partitioned):
            if rank == 0:
                yield name, parameter.detach().cpu().clone()


def save_hf(engine: Any, shape: Any, folder: Path, rank: int) -> None:
    """The policy in Hugging Face's form, gathered on rank 0: 2 (bfloat16) or 4 bytes a parameter there."""
    weights = dict(full_weights(engine, rank))
    if rank == 0:
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        shape.architectures = [type(engine.module).__name__]
        shape.save_pretrained(folder)


def positions_of(attention_BT: Tensor) -> Tensor:
    """Position of each token counted from the first one behind the left padding, as `generate` counts them, (B, T)."""
    return (attention_BT.cumsum(1) - 1).clamp(min=0)


def mean_over_ranks(values: dict[str, float]) -> dict[str, float]:
    """Each value as its mean over the ranks; one collective, on the device that the process group works on."""
    import torch.distributed as dist

    device = "cuda" if torch.cuda.is_available() else "cpu"
    packed = torch.tensor(list(values.values()), dtype=torch.float32, device=device)
    dist.all_reduce(packed)
    return dict(zip(values, (packed / dist.get_world_size()).tolist(), strict=True))
