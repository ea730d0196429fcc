"""What a configuration requests, in numbers: roles with their shards, rollout engine, limits of one node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.budget.types import BudgetPhase, Limit
from rlhfdoctor.i18n.message import NOTHING, Message
from rlhfdoctor.settings.spell import parse_version

Backend: TypeAlias = Literal["deepspeed", "fsdp1", "fsdp2", "plain"]
"""What shards a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One role's model as it is held by its ranks."""

    role: str
    """actor, critic, reference or reward."""
    shape: Shape
    trained: bool
    ranks: int
    """Over all nodes; they hold one shard each."""
    local_ranks: int
    """Ranks on the node that is looked at."""
    backend: Backend
    version: str | None = None
    """Of DeepSpeed."""
    stage: int = 0
    """Of ZeRO."""
    offload_optimizer: bool = False
    offload_param: bool = False
    pin_optimizer: bool = False
    pin_param: bool = False
    groups: int = 1
    """Parameter groups of the optimizer: buffers are one a group at ZeRO-1 and 2."""
    ratio: float = 1.0
    """Share of the sub-groups whose states an offload keeps on the host (offload_optimizer.ratio, stage 3)."""
    sub_group: int = 1_000_000_000
    """DeepSpeed's sub_group_size, elements."""
    bucket: int = 500_000_000
    """DeepSpeed's reduce_bucket_size, elements."""
    overlap: bool = False
    width: int = 2
    """Bytes of a weight."""
    mixed: bool = False
    """The weights are in fp32, and autocast computes in 16 bit."""
    fused_head: bool = False
    """Logits are made and used a tile at a time (TRL's chunked_logprob.py)."""
    sum_width: int | None = None
    """Bytes per gradient during accumulation; None: as the weights."""
    accumulates: bool = False
    """Several micro batches make one optimizer step."""
    lora_rank: int = 0
    """If above 0, only adapters of this rank are trained; the weights are frozen."""
    value_head: bool = False
    """One number per token in place of logits."""
    sequences: int = 1
    """Of a training micro batch on one rank."""
    scored: int = 1
    """Of a micro batch that only passes forward."""
    tokens: int = 1024
    """Of a sequence at its longest, prompt and response."""
    answer_tokens: int | None = None
    """Positions whose logits are computed; None: all."""
    parallel: int = 1
    """GPUs that share one sequence (ring attention, Ulysses)."""
    recompute: bool = False
    logit_width: float = 12
    """Bytes per token and vocabulary entry at the peak of training (settings_notes section 3)."""
    scored_logit_width: float | None = None
    """The same for a forward-only micro batch; None: half of it."""
    concurrent: bool = False
    """It is trained while other roles on its GPUs are."""
    sleeps: bool = False
    """Its states leave the GPU between the updates, page-locked (OpenRLHF's DeepSpeed sleep)."""
    on_host: bool = False
    """FSDP2's CPUOffloadPolicy: weights, gradients and states live in host memory and are stepped there."""
    saved: bool = True
    """Rank 0 saves it in Hugging Face's format, if requested."""
    gathers: bool = True
    """For that rank 0 gathers whole weights in host memory."""
    clones: bool = False
    """For that every rank copies its whole weights to host memory."""
    swap_bytes: int = 0
    """Of page-locked swap blocks that its processes hold (the bundled trainer), one buffer per layer."""
    rebuilds: bool = False
    """The blocks are dropped and rebuilt around every rollout."""
    process: str = ""
    """Roles with one name share their processes."""
    gpus: str = ""
    """Roles with one name share their GPUs."""

    def since(self, version: str) -> bool:
        """Whether the DeepSpeed in use is this or newer; the newest is assumed if unknown."""
        here, there = parse_version(self.version), parse_version(version)
        return here is None or there is None or here >= there

    @property
    def parameters(self) -> int:
        """Weights of this role: a value head takes the place of the output head."""
        if not self.value_head:
            return self.shape.parameters
        head = 0 if self.shape.tied else self.shape.vocabulary * self.shape.hidden
        return self.shape.parameters - head + self.shape.hidden + 1

    @property
    def compute_width(self) -> int:
        """Bytes of an activation: FSDP and autocast keep weights in fp32 and compute in 16 bit."""
        return 2 if self.mixed or self.backend.startswith("fsdp") else self.width

    @property
    def is_mapped(self) -> bool:
        """Whether the weights, once read, are pages of their files: of the same type, and not written to yet."""
        return self.width == self.shape.stored_width

    @property
    def trainable(self) -> int:
        """Parameters with gradients and optimizer states."""
        return self.shape.adapter_parameters(self.lora_rank) if self.lora_rank else self.parameters

    @property
    def largest_trained(self) -> int:
        """Elements of the largest parameter that has a gradient."""
        return (
            self.lora_rank * max(self.shape.hidden, self.shape.intermediate)
            if self.lora_rank
            else self.shape.largest_parameter
        )

    @property
    def share(self) -> int:
        """Parameters of one shard."""
        return -(-self.parameters // self.ranks)

    @property
    def states(self) -> int:
        """Trained parameters of one shard."""
        return -(-self.trainable // self.ranks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """The rollout engines of one node."""

    shape: Shape
    local_ranks: int
    """Workers (GPUs) on the node."""
    tensor_parallel: int = 1
    width: int = 2
    utilization: float | None = None
    """Share of a GPU that it claims."""
    cache_bytes: int | None = None
    """Size of the KV cache, if set directly."""
    sleep_level: int = 0
    """1: keeps the weights in page-locked host memory while it sleeps; 2: drops them; 0: never sleeps."""
    late_cache: bool = False
    """Woken up, it gets its weights first and its KV cache when they are in."""
    swap_bytes: int = 0
    """Of host blocks for the KV cache, per GPU."""
    colocated: bool = False
    """It shares its GPUs with trained roles."""
    process: str = "rollout engine"
    gpus: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One node of a run; the fullest if they differ."""

    device: Literal["cuda", "cpu"]
    models: tuple[Model, ...]
    engine: Engine | None = None
    ray: bool = True
    imports: int = 0
    """Bytes that a rank's imports take on a CPU beside Python, torch and DeepSpeed."""
    driver: bool = True
    """Whether the driver may run on this node."""
    store_bytes: int | None = None
    """Ray's object store; None if unknown."""
    experience_bytes: int = 0
    """Of a step's rollout in the object store."""
    loaders: int = 0
    """Processes that load data."""
    reward_workers: int = 0
    without: frozenset[BudgetPhase] = frozenset()
    """Phases that this run does not have, beside those that other fields tell: supervised training has no rollout."""
    saves: bool = True
    saves_hf: bool = False
    """Whole weights are written at every checkpoint, in Hugging Face's form."""
    saves_at_end: Literal["", "weights", "checkpoint"] = ""
    """What is written when training is over: whole weights in Hugging Face's form, or one more checkpoint."""
    copies_weights: bool = False
    """FSDP2: a checkpoint's weights are copied to the host, as those of FSDP1 always are."""
    copies_states: bool = False
    """FSDP: so are Adam's states."""
    file_bytes: int = 0
    """Of weights that are copied once more while one file of a Hugging Face save is written."""
    saves_in_memory: bool = False
    resumes: bool = False
    reads: Literal["shards", "in turn", "universal"] = "shards"
    """How a resume reads DeepSpeed's files: every rank its own at once, one rank after the other, or all of them a
    universal checkpoint."""
    launched: bool = True
    """Every rank of a node has its own LOCAL_RANK, as deepspeed, torchrun and accelerate give it."""
    gpu_bytes: int | None = None
    gpus_here: int = 1
    limits: tuple[Limit, ...] = ()
    nodes: int = 1
    node: Message = NOTHING
    """Label of the node, for the report."""
    framework: str = ""
    version: Message = NOTHING
    assumed: tuple[Message, ...] = ()
    """Assumptions about what is unknown from the files, as sentences."""
