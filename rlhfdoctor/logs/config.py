"""Where a log shows the configuration in force: argv, Hydra overrides, dumps, versions, modules."""

from __future__ import annotations

import re

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.plugins import folders
from rlhfdoctor.vocabulary import EVENT

_LIBRARIES = (
    "deepspeed",
    "torch",
    "ray",
    "vllm",
    "sglang",
    "transformers",
    "accelerate",
    "safetensors",
    r"nvidia-nccl-cu\d\d",
)
_PACKAGES = "|".join([*(re.sub("[-_]", "[-_]", p.name) for spec in folders.load() for p in spec.packages), *_LIBRARIES])

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.config.argv,
        r"\[(?:ERROR|INFO)\] \[launch\.py:\d+:\w+\] (?:process \d+ spawned with command: )?(?P<list_text>\[.*)",
        "[2025-02-18 09:14:22,204] [ERROR] [launch.py:324:sigkill_handler] ['/usr/bin/python3', '-u', 'run.py', "
        "'--local_rank=1', '--deepspeed', 'ds.json'] exits with return code = -9",
    ),
    line(
        EVENT.config.overrides,
        r"Error executing job with overrides: (?P<list_text>\[.*)",
        "Error executing job with overrides: ['algorithm.adv_estimator=grpo', 'data.train_batch_size=16']",
    ),
    line(
        EVENT.version.package,
        rf"^[\s>]*(?P<name>{_PACKAGES})(?:==| +)(?P<version>\d+\.\d+[\w.]*)",
        "openrlhf==0.5.3",
    ),
    line(
        EVENT.config.model_size,
        r"model: .{0,60}?\d[bB]\b|actor \d{1,3}(?:\.\d+)?[bB]\b",
        "model: Llama2 70B",
    ),
    line(
        EVENT.config.moe_model,
        r"(?P<name>Mixtral|PhiMoE|GptOss|DeepseekV[23]|Moe|Dbrx|Jamba)(?:ForCausalLM|SparseMoeBlock|SparseMoE|MoE\b"
        r"|MoeBlock)",
        '  File "/opt/transformers/models/qwen3_moe/modeling_qwen3_moe.py", line 214, in Qwen3MoeSparseMoeBlock',
    ),
    line(
        EVENT.config.pin_edited,
        r"pin_memory['\"]?: ?False",
        "# deepspeed_utils.py edited: offload_optimizer pin_memory: False",
    ),
    line(
        EVENT.framework.module,
        rf"(?P<name>{'|'.join(command for spec in folders.load() for command in spec.commands)})",
        "python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3",
    ),
)
