"""Names of processes, actors or functions -> the role or phase in an RLHF run."""

from __future__ import annotations

import re
from collections.abc import Collection

from rlhfdoctor.i18n.message import Message, say, term
from rlhfdoctor.plugins import folders
from rlhfdoctor.vocabulary import EVENT
from rlhfdoctor.vocabulary.names import Kind
from rlhfdoctor.vocabulary.run import ROLES, Phase, Role

_COMMON_ROLES: dict[Role, str] = {
    "doctor": r"NodeRecorder|rlhfdoctor",
    "raylet": r"raylet|gcs_server|dashboard|plasma|log_monitor|ray start",
    "critic": r"Critic",
    "reference": r"Reference|RefModel",
    "reward worker": r"(?<!Actor)[Rr]eward(?:Loop)?(?:Manager)?W(?:o|$)|compute_score|reward_worker|math_verify"
    r"|(?:Sandbox|Judge|Verifier|Tool)Worker|sandbox_fusion"
    r"|(?:Remote|Sim|Tool|Sandbox)Env|Env(?:ironment)?(?:Worker|Actor|Pool|Manager)?\.(?:step|reset)\b",
    "data loader": r"pt_data_worker|[Dd]ata_?[Ll]oader",
    "reward": r"Reward|reward_model",
    "rollout engine": r"vLLM|VLLM|EngineCore|RayWorkerWrapper|sglang",
    "driver": r"ray::train|JobSupervisor",
    "actor": r"FSDPActor",
}
_COMMON_PHASES: dict[Phase, str] = {
    "checkpoint": r"save_checkpoint|save_model|_save_zero|state_dict_hook|save_pretrained|\.save\b",
    "load": r"load_checkpoint|resume|from_pretrained|load_state_dict|initialize_optimizer|\bconvert\b",
    "weight_sync": r"update_weights|wake_up|backload",
    "score": r"log_?probs?\b|calculate_log_probs|compute_rewards?\b",
    "rollout": r"generate|rollout_batch|sample\b",
    "update": r"training_step|backward|optimizer_step|optimizer\.step",
}
_ROLES = tuple(
    (re.compile(folders.joined(_COMMON_ROLES[role], (spec.roles.get(role) for spec in folders.load()))), role)
    for role in ROLES
)
_PHASES = tuple(
    (re.compile(folders.joined(common, (spec.functions.get(phase) for spec in folders.load()))), phase)
    for phase, common in _COMMON_PHASES.items()
)
_NAME_LENGTH = 15
"""What the kernel keeps of a name."""


def _classes() -> dict[str, Role]:
    """Ray class, also as cut to a process name by the kernel, -> role; without ambiguous cut names."""
    whole = {f"ray::{name}": role for spec in folders.load() for name, role in spec.actors.items() if role is not None}
    cut: dict[str, set[Role]] = {}
    for name, role in whole.items():
        cut.setdefault(name[:_NAME_LENGTH], set()).add(role)
    return {name: next(iter(roles)) for name, roles in cut.items() if len(roles) == 1} | whole


_CLASSES = _classes()


def find_role(name: str | None) -> Role | None:
    """The role of a process, actor class or command, by name, or None.

    >>> find_role("ray::ActorModelR"), find_role("ray::LLMRayActo")
    ('actor', 'rollout engine')
    >>> find_role("LLMRayActor"), find_role("ray::WorkerDict.actor_rollout_generate_sequences")
    ('rollout engine', 'actor')
    """
    if not name:
        return None
    if (known := _CLASSES.get(name if name.startswith("ray::") else f"ray::{name}")) is not None:
        return known
    return next((role for regex, role in _ROLES if regex.search(name)), None)


def find_phase(name: str | None) -> Phase | None:
    """The phase of a function, task or command, by name, or None.

    >>> find_phase("ray::WorkerDict.actor_rollout_save_checkpoint")
    'checkpoint'
    """
    if not name:
        return None
    return next((phase for regex, phase in _PHASES if regex.search(name)), None)


def roles_say(roles: Collection[str]) -> Message:
    """The roles that a table of processes holds, as a message."""
    if not roles:
        return say("roles in the table: none known")
    return say("roles in the table: {roles}", roles=tuple(term(role) for role in sorted(roles)))


MARKS: dict[Kind, Phase] = {
    EVENT.phase.update: "update",
    EVENT.phase.rollout: "rollout",
    EVENT.phase.score: "score",
    EVENT.phase.weight_sync: "weight_sync",
    EVENT.phase.checkpoint: "checkpoint",
    EVENT.phase.checkpoint_load: "load",
    EVENT.phase.load: "load",
    EVENT.deepspeed.checkpoint_load: "load",
    EVENT.deepspeed.checkpoint_save: "checkpoint",
    EVENT.deepspeed.optimizer_init: "load",
    EVENT.deepspeed.zero_stage: "load",
    EVENT.vllm.awake: "rollout",
    EVENT.vllm.cache_freed: "rollout",
}
"""Event kinds that mark a phase."""
