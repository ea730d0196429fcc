"""Marks of steps or phases in log lines: the words by which each framework shows them.

A mark does not say that something failed, only what the run was doing. `phase` of an event is
one of `types.Phase`; `step` is one PPO iteration.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.plugins import folders
from rlhfdoctor.vocabulary import EVENT
from rlhfdoctor.vocabulary.names import Kind


def _with(kind: Kind, common: str) -> str:
    """The common expression for a phase with those of the frameworks."""
    return folders.joined(common, (spec.marks.get(kind) for spec in folders.load()))


PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.phase.update,
        _with(EVENT.phase.update, r"training_step\b"),
        "ray::WorkerDict.actor_rollout_update_actor() (pid=1)",
    ),
    line(
        EVENT.phase.rollout,
        _with(
            EVENT.phase.rollout,
            r"Processed prompts: +\d+%\|[^|]*\| *(?P<done_count>\d+)/(?P<total_count>\d+) \[(?P<elapsed_text>[\d:]+)<"
            r"|Processed prompts: +\d+%",
        ),
        "Processed prompts:  85%|########5 | 870/1024 [03:19<00:35,  4.37it/s]",
    ),
    line(
        EVENT.phase.score,
        _with(EVENT.phase.score, r"Computing logprobs"),
        "ray::WorkerDict.ref_compute_ref_log_prob() (pid=1)",
    ),
    line(
        EVENT.phase.weight_sync,
        _with(EVENT.phase.weight_sync, r"update_weights"),
        "(ActorModelRayActor pid=7) broadcast_to_vllm",
    ),
    line(
        EVENT.phase.checkpoint,
        _with(
            EVENT.phase.checkpoint,
            r"Saving sharded model checkpoint|Saving (?:model )?checkpoint\b"
            r"|[Ss]aving (?:the )?(?:\w{1,20} ){0,3}model to|save_checkpoint\b"
            r"|(?:Retrieving|Getting) (?:full model|optimizer) state dict"
            r"|Saved (?:model|optim|checkpoint) to|Writing model shards: +\d+%",
        ),
        "(WorkerDict pid=18233, ip=10.0.0.11) Saving sharded model checkpoint to /ckpt/global_step_1/actor",
    ),
    line(
        EVENT.phase.checkpoint_load,
        _with(
            EVENT.phase.checkpoint_load, r"Resuming from|load_checkpoint\(|Loading model from \S{1,200}checkpoint-\d+"
        ),
        "(TaskRunner pid=7) Load from checkpoint folder: /ckpt/global_step_100",
    ),
    line(
        EVENT.phase.load,
        _with(
            EVENT.phase.load,
            r"Loading (?:checkpoint shards|weights): +\d+%|Loading safetensors checkpoint shards"
            r"|Initializing language decoder|from_pretrained\(",
        ),
        "Loading checkpoint shards:  50%|#####     | 7/14 [00:12<00:12,  1.77s/it]",
    ),
    line(
        EVENT.phase.first_steps,
        r"(?P<note_text>(?:dies|died|crash\w{0,8}|killed|OOM)\b.{0,80}\bfirst optimizer step)",
        "crashed at micro step 16 of 16, in the first optimizer step",
    ),
    line(
        EVENT.progress.long,
        r"\d{1,3}%\|[^|]{0,400}\| *[^ \[]{1,30}/[^ \[]{1,30} \["
        r"(?P<elapsed_text>(?:\d+:\d\d|[1-9]\d|09):\d\d)<(?P<left_text>\d[\d:]*)",
        "Indexing:  35%|###4      | 70911/204010 [41:07<1:17:12, 28.7it/s]",
        when="tqdm, from nine minutes on; a bar that never moved shows ? for the time left",
        look_for=r" \[(?:\d+:\d\d|[1-9]\d|09):\d\d<\d",
    ),
    line(
        EVENT.phase.finished,
        r"['\"]train_runtime['\"]: "
        r"|(?:^|[\]:>)-] |INFO )[Tt]raining (?:completed|finished)(?:[.,!]|: \d|\s*$| (?:in|at)\b)"
        r"|(?:^|[\]:>)-] |INFO )Job finished|Final validation metrics: ",
        "{'train_runtime': 18204.7719, 'train_samples_per_second': 0.447}",
    ),
)
