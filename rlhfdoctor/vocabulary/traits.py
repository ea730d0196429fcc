"""What frameworks may have in common: asked for in place of their names."""

from __future__ import annotations

from typing import cast

from rlhfdoctor.vocabulary.names import Pending, Scope, Trait


def if_it(meaning: str) -> Trait:
    """Declares a trait: what holds for a framework that has it."""
    return cast(Trait, Pending(Trait, meaning))


class TRAIT(Scope):
    """Traits of frameworks."""

    separator = ""

    engine_colocated = if_it("runs engine and trainer on the same GPUs")
    separate_role_gpus = if_it("gives each role GPUs of its own, unless colocate_all is set")
    global_batch_follows_micro_batch = if_it("trains with a global batch of micro batch x ranks x accumulation steps")
    trains_with_deepspeed = if_it("trains with DeepSpeed")
    reads_deepspeed_json = if_it("takes DeepSpeed's own keys, in a JSON file of the user's")
    ignores_deepspeed_keys = if_it(
        "makes DeepSpeed's configuration itself or uses none, so that DeepSpeed's own keys change nothing"
    )
    flags_from_fields = if_it("takes every field of its configuration as a flag, too, and --no_FIELD")
    prints_configuration = if_it("prints its whole configuration as a dictionary at start")
    repeats_prompts = if_it("repeats each prompt instead of asking the engine for n samples")
    generates_without_engines = if_it("generates on the trainer's own ranks where it has no engines")
    keeps_reference_on_host = if_it("keeps the reference model on the host, whatever its setting says")
    local_ranks = if_it("is started by a launcher that gives each rank of a node its own LOCAL_RANK")
    frees_cache_engine = if_it("drops the engine's cache between rollouts unless it is set not to")
    switches_expandable_segments = if_it("switches expandable segments off and on around the engine's sleep")
    trains_on_cpus = if_it("can train on a node without GPUs")
    released_with_doctor = if_it("is released with the doctor, so that its version is known")
