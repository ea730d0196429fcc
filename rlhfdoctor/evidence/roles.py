"""Names of processes, actors and functions -> roles and phases of an RLHF run."""

from __future__ import annotations

import re

from rlhfdoctor.types import Phase
from rlhfdoctor.vocabulary import EVENT

_ROLES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"NodeRecorder|rlhfdoctor"), "doctor"),
    (re.compile(r"raylet|gcs_server|dashboard|plasma|log_monitor|ray start"), "raylet"),
    (re.compile(r"Critic"), "critic"),
    (re.compile(r"Reference|RefModel|compute_ref_log_prob|ref_compute"), "reference"),
    (
        re.compile(
            r"(?<!Actor)(?:[Rr]eward(?:Loop)?(?:Manager)?W(?:o|$)|AutoRewardMana|compute_reward(?:_async)?\b)|[Rr]eward_?[Ll]oop|compute_score|reward_worker|math_verify"
            r"|(?:Sandbox|Judge|Verifier|Tool)Worker|sandbox_fusion"
        ),
        "reward worker",
    ),
    (re.compile(r"pt_data_worker|[Dd]ata_?[Ll]oader"), "data loader"),
    (re.compile(r"Reward|reward_model|compute_rm_score"), "reward"),
    (re.compile(r"LLMRayActor|LLMActor|vLLM|VLLM|EngineCore|RayWorkerWrapper|sglang|AsyncvLLM"), "rollout engine"),
    (re.compile(r"main_task|TaskRunner|Runner\b|ray::train|skyrl_entrypoint|JobSupervisor"), "driver"),
    (
        re.compile(r"Actor(?:Model|PPO)|ActorModelR|PolicyModel|WorkerDict|actor_rollout|MegatronTrain|FSDPActor"),
        "actor",
    ),
)
_PHASES: tuple[tuple[re.Pattern[str], Phase], ...] = (
    (re.compile(r"save_checkpoint|save_model|save_actor_model|save_critic_model|save_ckpt|save_logs_and_checkpoints|_save_zero|state_dict_hook|save_pretrained|\.save\b"), "checkpoint"),
    (re.compile(r"load_checkpoint|resume|init_model|from_pretrained|load_state_dict|initialize_optimizer|\bconvert\b"), "load"),
    (re.compile(r"sync_model_weights|broadcast_to_vllm|update_weights|load_dtensor_weights|wake_up|backload"), "weight_sync"),
    (re.compile(r"log_?probs?\b|compute_values|compute_rm|compute_ref|action_log_probs|calculate_log_probs|get_per_token_logps|compute_rewards?\b|_calculate_rewards|reward_score\b"), "score"),
    (re.compile(r"generate|make_experience|rollout_batch|sample\b"), "rollout"),
    (re.compile(r"update_actor|update_critic|update_policy|training_step|backward|optimizer_step|ppo_train|optimizer\.step|async_train|async_fit"), "update"),
)  # fmt: skip


def find_role(name: str | None) -> str | None:
    """The role that a process, actor class or command name tells, or None.

    >>> find_role("ray::ActorModelR"), find_role("ray::WorkerDict.actor_rollout_generate_sequences")
    ('actor', 'actor')
    """
    if not name:
        return None
    return next((role for regex, role in _ROLES if regex.search(name)), None)


def find_phase(name: str | None) -> Phase | None:
    """The phase that a function, task or command name tells, or None.

    >>> find_phase("ray::WorkerDict.actor_rollout_save_checkpoint")
    'checkpoint'
    """
    if not name:
        return None
    return next((phase for regex, phase in _PHASES if regex.search(name)), None)


MARKS: dict[str, Phase] = {
    EVENT.phase.update: "update",
    EVENT.phase.rollout: "rollout",
    EVENT.phase.score: "score",
    EVENT.phase.weight_sync: "weight_sync",
    EVENT.phase.checkpoint: "checkpoint",
    EVENT.phase.finished: "checkpoint",
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
