"""PPO on text, one loop from top to bottom; `python -m trainer.train --config trainer/configs/cpu-tiny.yaml`.

The driver holds no weights. It asks the roles' ranks (roles.py, through Ray: cluster.py), computes rewards and
advantages (ppo.py), and says what it does: a line a phase, metrics by rank (metrics.py), marks for `doctor watch`.
Shapes: B sequences of a step, P prompt, A response and T = P + A tokens.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from rlhfdoctor import marks
from trainer.config import Config, ConfigError, read_config

if TYPE_CHECKING:
    from trainer.cluster import Group
    from trainer.metrics import Metrics

Batch: TypeAlias = dict[str, Any]
"""Tensors by name, with the letters of their dimensions."""

log = logging.getLogger("trainer")


def check_functions(config: Config) -> None:
    """The functions that the configuration names exist; a worker would say so much later."""
    from trainer.data import find_function

    find_function(config.data.task, "data.task")
    find_function(config.reward.function, "reward.function")
    if config.train.callback:
        find_function(config.train.callback, "train.callback")


def name_latest(config: Config, step: int) -> None:
    """From here on the checkpoint of this step counts: all ranks of all roles have written theirs."""
    fresh = config.checkpoints / "latest.new"
    fresh.write_text(f"step{step}")
    fresh.replace(config.checkpoints / "latest")


def find_latest(config: Config) -> int:
    """The step of the newest whole checkpoint; 0 if there is none."""
    try:
        return int((config.checkpoints / "latest").read_text().removeprefix("step"))
    except FileNotFoundError:
        return 0
    except ValueError:
        raise ConfigError(f"{config.checkpoints / 'latest'} does not name a step; write stepN into it") from None


@dataclass
class Run:
    """What a training is made of, once it is loaded."""

    config: Config
    metrics: Metrics
    groups: dict[str, Group]
    prompts: Iterator[Any]
    engine: Any
    """A rollout engine of its own; None: the actor writes the responses."""
    callback: Any
    first: int
    """The step to begin with."""


def load(config: Config, metrics: Metrics, engines: int) -> Run:
    """Groups of ranks, prompts, engine; of a resume where it begins."""
    from trainer import cluster
    from trainer.data import batches, find_function
    from trainer.engine import load_tokenizer

    groups, placement = cluster.start_groups(config, engines)
    prompts = batches(config, load_tokenizer(config))
    callback = find_function(config.train.callback, "train.callback") if config.train.callback else None
    first = 1
    if config.checkpoint.resume:
        first = find_latest(config) + 1
        if first > 1:
            log.info("step 0 phase load: Resuming from %s at step %d", config.checkpoints, first - 1)
            for name in ("actor", "critic"):
                groups[name].all("resume", first - 1)
        for _ in range(1, first):
            next(prompts)  # those have been seen
    engine = None
    if engines:
        from trainer.rollout import start_engine

        engine = start_engine(config, placement)
        engine.sync(groups["actor"])
    return Run(config, metrics, groups, prompts, engine, callback, first)


def train(config: Config) -> list[float]:
    """Runs `train.steps` PPO iterations; the mean score of each."""
    from trainer import cluster

    marks.role("driver")
    engines = 1 if config.rollout.backend == "vllm" else 0
    log.info("step 0 phase load: %s ranks, %s", config.cluster.world_size, config.cluster.placement)
    cluster.start_ray(config, engines)

    import ray
    from tqdm import tqdm

    from trainer.metrics import Metrics

    metrics = Metrics(Path(config.out, "metrics"), "driver")
    with metrics.span("load"):
        run = load(config, metrics, engines)
    history: list[float] = []
    bar = tqdm(range(run.first, config.train.steps + 1), desc="PPO", unit="step", disable=None)
    for step in bar:
        began = time.perf_counter()
        metrics.step = step
        marks.step(step)
        for group in run.groups.values():
            group.all("begin", step)

        # 1. Rollout: the policy answers a batch of prompts.
        log.info("step %d/%d phase rollout", step, config.train.steps)
        with metrics.span("rollout"):
            batch, answers = rollout(run)

        # 2. Scores: the reward of each response; log-probabilities of policy and reference, and values, of each token.
        log.info("step %d/%d phase score", step, config.train.steps)
        with metrics.span("score"):
            inputs = score(run, batch, answers)

        # 3. Rewards and advantages: the score at the last token, minus the KL penalty at each one.
        kl_BA, added = advantages(config, batch)
        inputs |= added

        # 4. Update: the clipped losses over the batch, for actor and critic.
        log.info("step %d/%d phase update", step, config.train.steps)
        with metrics.span("update"):
            jobs = [(run.groups[name], run.groups[name].submit("update", inputs)) for name in ("actor", "critic")]
            found = {name: value for group, job in jobs for name, value in group.wait(job).items()}

        # 5. Weight sync: a rollout engine of its own gets the new weights.
        if run.engine:
            log.info("step %d/%d phase weight_sync", step, config.train.steps)
            with metrics.span("weight_sync"):
                run.engine.sync(run.groups["actor"], step)

        # 6. Checkpoint.
        if config.checkpoint.save_steps and step % config.checkpoint.save_steps == 0:
            log.info("step %d/%d phase checkpoint: saving to %s", step, config.train.steps, config.checkpoints)
            with metrics.span("checkpoint"):
                save(run, step)

        history.append(batch["raw_B"].mean().item())
        found |= measure(batch, kl_BA, history[-1], time.perf_counter() - began)
        metrics.write(**found)
        show(step, config.train.steps, found)
        bar.set_postfix(score=f"{found['score']:.3f}", kl=f"{found['kl']:.3f}")
        if run.callback:
            run.callback(step, batch, found)

    ray.shutdown()
    if history:
        log.info("Training finished: %d steps, last score %.3f", config.train.steps, history[-1])
    else:
        log.info("Training finished: nothing to do, %d steps were there", config.train.steps)
    return history


def rollout(run: Run) -> tuple[Batch, list[Any]]:
    """The next prompts with their responses, and the answers that the task expects."""
    prompt_BP, prompt_mask_BP, answers = next(run.prompts)
    repeat = run.config.rollout.samples_per_prompt
    batch = {
        "prompt_BP": prompt_BP.repeat_interleave(repeat, 0),
        "prompt_mask_BP": prompt_mask_BP.repeat_interleave(repeat, 0),
    }
    batch |= run.engine.generate(batch) if run.engine else run.groups["actor"].split("generate", batch)
    return batch, [answer for answer in answers for _ in range(repeat)]


def score(run: Run, batch: Batch, answers: list[Any]) -> Batch:
    """Adds scores, log-probabilities, values to the batch; what the update takes of it."""
    import torch

    batch |= run.groups["reward"].split("score", {"response_BA": batch["response_BA"], "answers": answers})
    longest = int(batch["mask_BA"].sum(1).max())  # columns behind the longest response are padding only
    batch["mask_BA"], batch["response_BA"] = batch["mask_BA"][:, :longest], batch["response_BA"][:, :longest]
    batch["tokens_BT"] = torch.cat([batch["prompt_BP"], batch["response_BA"]], 1)
    batch["attention_BT"] = torch.cat([batch["prompt_mask_BP"], batch["mask_BA"].long()], 1)
    inputs = {name: batch[name] for name in ("tokens_BT", "attention_BT", "mask_BA")}
    wanted = (("actor", "logprobs"), ("reference", "logprobs"), ("critic", "values"))
    jobs = [(run.groups[name], run.groups[name].submit(method, inputs)) for name, method in wanted]
    for group, job in jobs:
        batch |= group.wait(job)
    return inputs


def advantages(config: Config, batch: Batch) -> tuple[Any, Batch]:
    """The KL at each token, and what the update takes besides."""
    from trainer import ppo

    algorithm = config.algorithm
    kl_BA = ppo.kl_of(batch["logprobs_BA"], batch["ref_logprobs_BA"], algorithm.kl)
    rewards_BA = ppo.token_rewards(batch["scores_B"], kl_BA, batch["mask_BA"], algorithm.kl_coef)
    advantages_BA, returns_BA = ppo.advantages_of(
        rewards_BA, batch["values_BA"], batch["mask_BA"], algorithm.gamma, algorithm.lam
    )
    if algorithm.whiten_advantages:
        advantages_BA = ppo.whiten(advantages_BA, batch["mask_BA"])
    return kl_BA, {
        "logprobs_BA": batch["logprobs_BA"],
        "values_BA": batch["values_BA"],
        "advantages_BA": advantages_BA,
        "returns_BA": returns_BA,
    }


def save(run: Run, step: int) -> None:
    """A checkpoint of actor and critic; it counts when both are whole."""
    trained = (run.groups["actor"], run.groups["critic"])
    for group in trained:
        group.all("save", step)
    if run.config.checkpoint.in_memory:
        for group in trained:
            group.all("commit")
    name_latest(run.config, step)


def measure(batch: Batch, kl_BA: Any, mean: float, seconds: float) -> dict[str, float]:
    """Figures of a step, beside those of the update."""
    from trainer import ppo

    return {
        "score": mean,
        "kl": ppo.masked_mean(kl_BA, batch["mask_BA"]).item(),
        "response_length": batch["mask_BA"].sum(1).mean().item(),
        "seconds": seconds,
    }


def show(step: int, steps: int, found: dict[str, float]) -> None:
    """The line of a step in the log."""
    names = ("score", "kl", "response_length", "actor_loss", "critic_loss", "seconds")
    text = "step %d/%d score %.3f kl %.4f length %.1f policy_loss %.4f value_loss %.4f %.1f s"
    log.info(text, step, steps, *(found[name] for name in names))


@click.command(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="See trainer/README.md for every setting and metric.",
)
@click.option("--config", "file", type=click.Path(path_type=Path), help="YAML file; see trainer/configs.")
@click.option("--deepspeed", help="DeepSpeed JSON, in place of the one that the YAML file names.")
@click.option("--model", help="Folder of a Hugging Face causal LM; none: a small model with random weights.")
@click.option("--rollout", type=click.Choice(["hf", "vllm"]), help="Who writes the responses.")
@click.argument("words", nargs=-1, metavar="[SECTION.KEY=VALUE]...")
def main(
    file: Path | None, deepspeed: str | None, model: str | None, rollout: str | None, words: tuple[str, ...]
) -> None:
    """Train a policy with PPO on Ray and DeepSpeed, on GPUs or on two CPU cores.

    \b
    Examples:
      python -m trainer.train --config trainer/configs/cpu-tiny.yaml
      python -m trainer.train --config trainer/configs/cpu-tiny.yaml --rollout vllm train.steps=20
      doctor watch -- python -m trainer.train --config trainer/configs/cpu-tiny.yaml rollout.batch_size=64
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s", force=True
    )
    given = {"deepspeed": deepspeed, "model.path": model, "rollout.backend": rollout}
    try:
        config = read_config(file, [*(f"{key}={value}" for key, value in given.items() if value), *words])
        check_functions(config)
        train(config)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


if __name__ == "__main__":
    main()
