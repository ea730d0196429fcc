"""What DeepSpeed's launcher or engine says (deepspeed/launcher/launch.py, runtime/, utils/)."""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.deepspeed.killing,
        r"sigkill_handler\] Killing subprocess (?P<pid>\d+)",
        "[2025-02-18 09:14:03,530] [INFO] [launch.py:318:sigkill_handler] Killing subprocess 70312",
    ),
    line(
        EVENT.deepspeed.exit,
        r"exits with return code = (?P<exit_code>-?\d+)",
        "[ERROR] [launch.py:321:sigkill_handler] ['/usr/bin/python3', '-u', 'run.py'] exits with return code = -9",
    ),
    line(
        EVENT.deepspeed.saver_died,
        r"Checkpoint process died unexpectedly"
        r"|Checkpoint commit timed out after [\d.]{1,12} seconds\. Process alive: False",
        "RuntimeError: [0] Checkpoint process died unexpectedly. Check logs for OOM or other errors in the "
        "checkpoint subprocess.",
        when="the decoupled checkpoint engine, 0.18 and newer",
    ),
    line(
        EVENT.deepspeed.version,
        r"DeepSpeed info: version=(?P<version>[0-9][0-9.]*)",
        "[INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.13.0, git-hash=unknown, git-branch=unknown",
    ),
    line(
        EVENT.deepspeed.cpu_adam,
        r"DeepSpeed Basic Optimizer = DeepSpeedCPUAdam|Adam Optimizer #\d+ is created with"
        r"|Loading extension module cpu_adam"
        r"|cpu_offload: True|Time to load cpu_adam op|Building extension module cpu_adam",
        "[INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed Basic Optimizer = DeepSpeedCPUAdam",
    ),
    line(
        EVENT.deepspeed.zero_stage,
        r"Creating (?:torch\.)?\w* ?ZeRO stage (?P<stage>\d) optimizer",
        "[INFO] [logging.py:128:log_dist] [Rank 0] Creating torch.bfloat16 ZeRO stage 2 optimizer",
    ),
    line(
        EVENT.deepspeed.optimizer_init,
        r"(?:Before|After) initializing optimizer states|Before creating fp32 partitions"
        r"|After initializing ZeRO optimizer"
        r"|Before creating fp16 partitions|optimizer state initialized",
        "[INFO] [utils.py:829:see_memory_usage] Before initializing optimizer states",
    ),
    line(
        EVENT.deepspeed.checkpoint_load,
        r"\[Torch\] (?:Loading|Begin Load) checkpoint from (?P<path_text>\S+)"
        r"|Attempting to resume from (?P<resume_text>\S+)"
        r"|successfully read (?P<shard_count>\d+) ZeRO state_dicts"
        r"|loading (?P<load_count>\d+) zero partition checkpoints"
        r"|Loading (?:fp32|optimizer) states?|_get_all_zero_checkpoint_state_dicts",
        "[INFO] [engine.py:2754:_get_all_zero_checkpoint_state_dicts] successfully read 2 ZeRO state_dicts for rank 0",
    ),
    line(
        EVENT.deepspeed.checkpoint_save,
        r"\[Torch\] Saving (?P<path_text>\S+)|Saving model checkpoint: (?P<model_text>\S+)"
        r"|[Cc]heckpoint .{1,200} is (?:about to be saved|begin to save)",
        "[INFO] [torch_checkpoint_engine.py:21:save] [Torch] Saving "
        "./ckpt/_actor/global_step1/mp_rank_00_model_states.pt...",
    ),
    line(
        EVENT.deepspeed.checkpoint_saved,
        r"\[Torch\] Saved (?P<path_text>\S+?)\.? |zero checkpoint saved (?P<zero_text>\S+)"
        r"|Checkpoint \S+ is (?:ready|committed)",
        "[INFO] [engine.py:3536:_save_zero_checkpoint] zero checkpoint saved "
        "./ckpt/_actor/global_step1/zero_pp_rank_0_mp_rank_00_optim_states.pt",
    ),
    line(
        EVENT.deepspeed.pinned,
        r"\[pinned-memory (?P<what_text>[^\]]+)\].{0,80}?(?:crossed (?P<pinned_gib>[0-9.]+) GB"
        r"|(?P<total_gib>[0-9.]+) GB pinned)",
        "[pinned-memory checkpoint] crossed 32.000 GB: 41 allocations",
        when="0.19.5+",
    ),
    line(
        EVENT.deepspeed.grad_accum_fp32,
        r"grad_accum_dtype['\"]?[ .:]+['\"]?(?:torch\.)?(?:fp32|float32)",
        "[INFO] [config.py:971:print]   grad_accum_dtype ............. fp32",
    ),
    line(
        EVENT.deepspeed.leaf_modules,
        r"set_z3_leaf_modules|_z3_leaf\b|\"leaf_module\"|leaf_module ",
        "deepspeed.utils.set_z3_leaf_modules(model, [MixtralSparseMoeBlock])",
    ),
)
