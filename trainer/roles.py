"""What each role does on one rank: actor, critic, reference, reward.

Shapes as in ppo.py: B sequences of this rank, P prompt, A response and T = P + A tokens. A batch is a dictionary whose
values have one row a sequence; prompts are padded at the left and responses at the right, so column P is the first
response token in every row.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from trainer import ppo
from trainer.config import Config
from trainer.data import end_mask, find_function
from trainer.engine import (
    deepspeed_config,
    full_weights,
    load_tokenizer,
    make_engine,
    make_model,
    mean_over_ranks,
    model_config,
    positions_of,
    save_hf,
    write_staged,
)
from trainer.metrics import Metrics
from trainer.rollout import SwapBlocks

Batch = dict[str, Any]


def rows_of(batch: Batch, start: int, end: int) -> Batch:
    """Rows start to end of every value."""
    return {name: values[start:end] for name, values in batch.items()}


def micro_batches(batch: Batch, size: int) -> Iterator[Batch]:
    """The batch in pieces of `size` rows; the last may be smaller."""
    count = len(next(iter(batch.values())))
    for start in range(0, count, size):
        yield rows_of(batch, start, start + size)


def answer_logits(engine: Any, micro: Batch) -> Tensor:
    """Logits at the last prompt token and the response tokens only, (B, A + 1, V): most of a batch's memory."""
    attention_BT = micro["attention_BT"].to(engine.device)
    found: Tensor = engine(
        micro["tokens_BT"].to(engine.device),
        attention_mask=attention_BT,
        position_ids=positions_of(attention_BT),
        use_cache=False,
        logits_to_keep=micro["mask_BA"].shape[1] + 1,
    ).logits
    return found


class Role:
    """What all roles share: their configuration, their rank, and the file that they write metrics to."""

    name = ""

    def __init__(self, config: Config, rank: int) -> None:
        self.config, self.rank = config, rank
        self.metrics = Metrics(Path(config.out, "metrics"), self.name, rank)

    def begin(self, step: int) -> None:
        """Names the step that the next lines of metrics belong to."""
        self.metrics.step = step

    def __init_subclass__(cls) -> None:
        cls.name = cls.__name__.lower()


class Trained(Role, abc.ABC):
    """A role whose weights change: the update loop, and its checkpoints."""

    engine: Any

    @abc.abstractmethod
    def loss_of(self, micro: Batch) -> tuple[Tensor, dict[str, float]]:
        """The loss of one micro batch, and what to watch about it."""

    def update(self, batch: Batch) -> dict[str, float]:
        """All epochs over this rank's share of the step's batch; means over micro batches and ranks.

        DeepSpeed scales the loss by the number of accumulated micro batches, and its `step` changes weights only at
        the last one of a mini batch (deepspeed/runtime/engine.py, is_gradient_accumulation_boundary).
        """
        self.engine.train()
        sums: dict[str, float] = {}
        count = 0
        with self.metrics.span("update"):
            for epoch in range(self.config.algorithm.epochs):
                order = torch.randperm(len(batch["tokens_BT"]), generator=torch.Generator().manual_seed(epoch))
                shuffled = {name: values[order] for name, values in batch.items()}
                for micro in micro_batches(shuffled, self.config.train.micro_batch_size):
                    loss, watched = self.loss_of(micro)
                    self.engine.backward(loss)
                    self.engine.step()
                    count += 1
                    for name, value in {f"{self.name}_loss": loss.item(), **watched}.items():
                        sums[name] = sums.get(name, 0.0) + value
            found = mean_over_ranks({name: value / count for name, value in sums.items()})
        self.metrics.write(**found)
        return found

    def save(self, step: int) -> None:
        """DeepSpeed's checkpoint: weights, and each rank's part of the optimizer states."""
        with self.metrics.span("checkpoint"):
            folder = self.config.checkpoints / self.name
            self.engine.save_checkpoint(str(folder), tag=f"step{step}", client_state={"step": step}, save_latest=False)

    def commit(self) -> None:
        """Writes what the saves of this process left in memory."""
        with self.metrics.span("checkpoint"):
            write_staged()

    def resume(self, step: int) -> None:
        """Loads the states of that step."""
        found, _ = self.engine.load_checkpoint(str(self.config.checkpoints / self.name), tag=f"step{step}")
        if found is None:
            raise FileNotFoundError(f"no checkpoint of step {step} of the {self.name} in {self.config.checkpoints}")
        sample_apart(self.config, self.rank, step)


class Actor(Trained):
    """The policy that is trained, and that writes the responses unless vLLM does."""

    def __init__(self, config: Config, rank: int) -> None:
        super().__init__(config, rank)
        made = deepspeed_config(config, train=True)
        self.engine = make_engine(make_model(config, made), config, config.train.lr)
        self.tokenizer = load_tokenizer(config)
        self.shape = model_config(config)
        self.swap = SwapBlocks(config, self.shape)
        self.engine.module.generation_config = (
            GenerationConfig(  # not the folder's own: what samples must be what is scored
                max_new_tokens=config.data.max_response_length,
                do_sample=True,
                temperature=config.rollout.temperature,
                top_k=0,
                top_p=1.0,
                eos_token_id=self.tokenizer.eos_token_id,
                pad_token_id=self.tokenizer.pad_token_id,
            )
        )

    @torch.no_grad()
    def generate(self, batch: Batch) -> Batch:
        """Responses to the prompts, (B, max_response_length), padded after end-of-text."""
        config, most = self.config, self.config.data.max_response_length
        self.engine.eval()
        found = []
        with self.metrics.span("rollout"), self.swap.held(batch["prompt_BP"].shape[1] + most):
            for micro in micro_batches(batch, config.rollout.micro_batch_size):
                out_BT = self.engine.module.generate(
                    micro["prompt_BP"].to(self.engine.device),
                    attention_mask=micro["prompt_mask_BP"].to(self.engine.device),
                    synced_gpus=config.rollout.synced_gpus and self.engine.zero_optimization_partition_weights(),
                )
                response_BA = out_BT[:, micro["prompt_BP"].shape[1] :].cpu()
                found.append(
                    torch.nn.functional.pad(
                        response_BA, (0, most - response_BA.shape[1]), value=self.tokenizer.pad_token_id
                    )
                )
        return {"response_BA": torch.cat(found)}

    @torch.no_grad()
    def logprobs(self, batch: Batch) -> Batch:
        """Log-probabilities of the response tokens under the present weights, (B, A)."""
        self.engine.eval()
        with self.metrics.span("score"):
            return {
                "logprobs_BA": torch.cat(
                    [
                        self._logprobs(micro)[0].cpu()
                        for micro in micro_batches(batch, self.config.rollout.micro_batch_size)
                    ]
                )
            }

    def _logprobs(self, micro: Batch) -> tuple[Tensor, Tensor]:
        tokens_BT = micro["tokens_BT"].to(self.engine.device)
        answers = micro["mask_BA"].shape[1]
        logits_BTV = answer_logits(self.engine, micro)
        return ppo.logprobs_of(logits_BTV, tokens_BT[:, -answers - 1 :], self.config.rollout.temperature), logits_BTV

    def loss_of(self, micro: Batch) -> tuple[Tensor, dict[str, float]]:
        logprobs_BA, logits_BTV = self._logprobs(micro)
        here = {name: micro[name].to(logprobs_BA.device) for name in ("logprobs_BA", "advantages_BA", "mask_BA")}
        loss, watched = ppo.policy_loss(
            logprobs_BA, here["logprobs_BA"], here["advantages_BA"], here["mask_BA"], self.config.algorithm.clip
        )
        if self.config.algorithm.entropy_coef:
            entropy = ppo.masked_mean(ppo.entropy_of(logits_BTV / self.config.rollout.temperature), here["mask_BA"])
            loss = loss - self.config.algorithm.entropy_coef * entropy
            watched["entropy"] = entropy.item()
        return loss, watched

    def weights(self) -> dict[str, Tensor] | None:
        """All weights of the policy on rank 0, None on the others, which gather with it at ZeRO-3."""
        with self.metrics.span("weight_sync"):
            return dict(full_weights(self.engine, self.rank)) or None

    def save(self, step: int) -> None:
        super().save(step)
        if self.config.checkpoint.save_hf:
            with self.metrics.span("checkpoint"):
                save_hf(self.engine, self.shape, self.config.checkpoints / "hf" / f"step{step}", self.rank)


class Critic(Trained):
    """The value of each prefix of a response."""

    def __init__(self, config: Config, rank: int) -> None:
        super().__init__(config, rank)
        made = deepspeed_config(config, train=True)
        self.engine = make_engine(make_model(config, made, critic=True), config, config.train.critic_lr)

    @torch.no_grad()
    def values(self, batch: Batch) -> Batch:
        """Values before each response token, (B, A)."""
        self.engine.eval()
        with self.metrics.span("score"):
            return {
                "values_BA": torch.cat(
                    [self._values(micro).cpu() for micro in micro_batches(batch, self.config.rollout.micro_batch_size)]
                )
            }

    def _values(self, micro: Batch) -> Tensor:
        values_BT: Tensor = self.engine(
            micro["tokens_BT"].to(self.engine.device), micro["attention_BT"].to(self.engine.device)
        )
        return values_BT[:, -micro["mask_BA"].shape[1] - 1 : -1]

    def loss_of(self, micro: Batch) -> tuple[Tensor, dict[str, float]]:
        values_BA = self._values(micro)
        here = {name: micro[name].to(values_BA.device) for name in ("values_BA", "returns_BA", "mask_BA")}
        return ppo.value_loss(
            values_BA, here["values_BA"], here["returns_BA"], here["mask_BA"], self.config.algorithm.value_clip
        )


class Reference(Role):
    """The policy as it was at the start; it keeps the actor from drifting away."""

    def __init__(self, config: Config, rank: int) -> None:
        super().__init__(config, rank)
        made = deepspeed_config(config, train=False)
        self.engine = make_engine(make_model(config, made), config, lr=None)

    @torch.no_grad()
    def logprobs(self, batch: Batch) -> Batch:
        """Log-probabilities of the response tokens under the first weights, (B, A)."""
        found = []
        with self.metrics.span("score"):
            for micro in micro_batches(batch, self.config.rollout.micro_batch_size):
                tokens_BT, answers = micro["tokens_BT"].to(self.engine.device), micro["mask_BA"].shape[1]
                logits_BTV = answer_logits(self.engine, micro)
                found.append(
                    ppo.logprobs_of(logits_BTV, tokens_BT[:, -answers - 1 :], self.config.rollout.temperature).cpu()
                )
        return {"ref_logprobs_BA": torch.cat(found)}


class Reward(Role):
    """The rule that scores responses; on every rank for its own share, in this process or in the reward workers."""

    def __init__(self, config: Config, rank: int, workers: list[Any]) -> None:
        super().__init__(config, rank)
        self.function = find_function(config.reward.function, "reward.function")
        self.tokenizer = load_tokenizer(config)
        self.workers = workers

    def score(self, batch: Batch) -> Batch:
        """Score of each response, (B,), and 1.0 for each of its tokens up to end-of-text, (B, A).

        The ranks then agree on mean and spread of the scores: a collective, in which all wait for the slowest.
        """
        response_BA = batch["response_BA"]
        mask_BA = end_mask(response_BA, self.tokenizer.eos_token_id)
        length = self.config.data.max_response_length
        texts = [self.tokenizer.decode(row[mask > 0].tolist()) for row, mask in zip(response_BA, mask_BA, strict=True)]
        with self.metrics.span("score"):
            if self.workers:
                import ray

                jobs = [
                    self.workers[(self.rank + index) % len(self.workers)].score.remote(text, answer, length)
                    for index, (text, answer) in enumerate(zip(texts, batch["answers"], strict=True))
                ]
                scores = ray.get(jobs)
            else:
                scores = [
                    self.function(text, answer, length) for text, answer in zip(texts, batch["answers"], strict=True)
                ]
            scores_B = torch.tensor(scores, dtype=torch.float32)
            agreed = mean_over_ranks({"score": scores_B.mean().item(), "square": scores_B.square().mean().item()})
        variance = agreed["square"] - agreed["score"] ** 2
        if self.config.reward.normalize and variance > 1e-6:  # equal scores have no spread to divide by
            scores_B = scores_B / variance**0.5
        self.metrics.write(score=agreed["score"], example=texts[0])
        return {"scores_B": scores_B, "raw_B": torch.tensor(scores, dtype=torch.float32), "mask_BA": mask_BA}


def sample_apart(config: Config, rank: int, step: int = 0) -> None:
    """Every rank draws its own samples from here on; making a model had set the seed that all share."""
    torch.manual_seed(config.train.seed + 1 + rank + config.cluster.world_size * step)


ROLES: dict[str, type[Role]] = {"actor": Actor, "critic": Critic, "reference": Reference, "reward": Reward}
