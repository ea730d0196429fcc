"""Where a log shows the configuration in force: argv, overrides, commands, variables, dumps, versions, modules."""

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

_CLASSES = "|".join(
    [
        r"(?:Async)?EngineArgs|ServerArgs|Namespace|\w*TrainingArguments",
        r"(?:BCO|CPO|DPO|GKD|GRPO|KTO|NashMD|OnlineDPO|ORPO|PPO|PPOv2|PRM|RLOO|Reward|SFT|XPO)Config",
    ]
)
"""Whose repr is a configuration: argparse's, vLLM's, sglang's, transformers', TRL's."""
_VARIABLE = (
    r"(?:(?:NCCL|RAY|VLLM|PYTORCH|TORCH|MALLOC|GLOO|DEEPSPEED|DS|SGLANG|CUDA|OMP)_\w+|LD_PRELOAD|GLIBC_TUNABLES)"
)
_BEFORE = r"^(?:\s{0,200}(?:[>│] ?){0,20}(?:\([^()\n]{0,200}\) ?)?(?:\[[^\]\n]{0,200}\]:? ?)?)"
"""A reply's quotation mark, the prefix of Ray or of a launcher."""
_PROMPT = r"(?:[^$#%>\n]{0,300}\$ {1,9}|[^$#%>\n]{1,300}[#%] {1,9}|\+{1,9} {1,9}|.{0,300}\bcmd = )?"
_WRAPPER = r"(?:nohup|exec|time|sudo|env|srun|numactl|uv run)"
_FRONT = rf"(?:\w{{1,80}}=\S{{0,400}} {{1,9}}|{_WRAPPER} {{1,9}}(?:-\S{{1,80}} {{1,9}}){{0,20}}){{0,40}}"
"""Variables and wrappers before the program."""
_LAUNCHER = (
    r"(?:python3?(?:\.\d+)?(?: -u)? (?:-m [\w.]|\S+\.py\b)|torchrun |deepspeed |accelerate launch |ray job submit "
    r"|vllm serve |trl (?:dpo|grpo|kto|sft|reward|rloo|vllm-serve) )"
)

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.config.dump,
        rf"(?P<list_text>(?:API server (?:version \S+ )?args: )?\b(?:{_CLASSES})\(.*)",
        "(train pid=40122) Namespace(zero_stage=3, adam_offload=True, micro_train_batch_size=2, bf16=True)",
        follow=500,
        when="argparse; transformers/training_args.py __str__, one field a line; sglang's launch_server",
    ),
    line(
        EVENT.config.dump,
        r"(?P<list_text>non-default args: \{.*)",
        "INFO 08-14 09:00:11 [utils.py:253] non-default args: {'model': 'm/7b', 'gpu_memory_utilization': 0.55}",
        follow=60,
        when="vLLM from 0.10 on",
    ),
    line(
        EVENT.config.dump,
        r"(?P<list_text>LLM engine (?:\(v[^)]{0,60}\) )?with config: .*)",
        "INFO 03-25 10:01:02 [core.py:53] Initializing a V1 LLM engine (v0.8.2) with config: model='m/7b', "
        "dtype=torch.bfloat16, max_seq_len=4096, enforce_eager=False",
        when="vLLM's engine core, every release",
    ),
    line(
        EVENT.config.dump,
        r"(?P<list_text>\bjson = \{.*)",
        "[2025-02-18 09:14:22,204] [INFO] [config.py:994:print_user_config]   json = {",
        follow=300,
        when="DeepSpeed, runtime/config.py print_user_config",
    ),
    line(
        EVENT.config.dump,
        r"(?P<list_text>DeepSpeedEngine configuration:?)",
        "[2025-02-18 09:14:22,204] [INFO] [config.py:1003:print] DeepSpeedEngine configuration:",
        follow=160,
        when="DeepSpeed, runtime/config.py print",
    ),
    line(
        EVENT.config.dump,
        r"(?P<list_text>-{6,80} arguments -{6,80})",
        "------------------------ arguments ------------------------",
        follow=1000,
        when="Megatron-LM, training/arguments.py _print_args",
    ),
    line(
        EVENT.config.command,
        rf"{_BEFORE}{_PROMPT}(?P<list_text>{_FRONT}(?:\S{{0,400}}/)?{_LAUNCHER}.*)",
        "+ python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo data.train_batch_size=256",
        follow=200,
        when="set -x of a shell, DeepSpeed's launcher/runner.py, what people paste",
        look_for=_LAUNCHER,
    ),
    line(
        EVENT.config.variable,
        rf"{_BEFORE}(?:\++ )?(?:export +|declare -x +|setenv +)?(?P<list_text>{_VARIABLE}=.*)",
        'declare -x PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"',
    ),
    line(
        EVENT.config.variable,
        rf"(?P<list_text>['\"]{_VARIABLE}['\"] ?: ?['\"].*)",
        "runtime_env={'env_vars': {'RAY_memory_usage_threshold': '0.97'}}",
    ),
    line(
        EVENT.config.variable,
        r"(?P<list_text>NCCL_\w{1,60} set by environment to \S+)",
        "node-1:4123:4123 [0] NCCL INFO NCCL_CUMEM_ENABLE set by environment to 0.",
        when="NCCL, misc/param.cc",
    ),
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
        EVENT.config.parameters,
        r"[Tt]rainable param(?:eter)?s(?: =|:) ?(?P<trained_text>[\d,]{1,20})"
        r"(?: \|\| all params: (?P<all_text>[\d,]{1,20}))?"
        r"|(?:总参数量|[Tt]otal param(?:eter)?s)[:：=] ?"
        r"(?P<million_text>\d{1,6}(?:\.\d{1,4})?) ?(?:百万|M\b)",
        "trainable params: 4,194,304 || all params: 6,742,609,920 || trainable%: 0.0622",
        when="peft's print_trainable_parameters; transformers' Trainer",
    ),
    line(
        EVENT.config.engine_share,
        r"(?:x gpu_memory_utilization|Desired GPU memory utilization is) "
        r"\((?P<wanted_ratio>0?\.\d{1,20}|1(?:\.0{1,6})?)[,)]",
        "the current vLLM instance can use total_gpu_memory (44.53GiB) x gpu_memory_utilization (0.98) = 43.64GiB",
        when="vLLM, worker/worker.py to 0.9, v1/worker/gpu_worker.py since",
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
