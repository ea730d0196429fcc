"""A short name for a command: its script, not its launcher, nor the value of a launcher's option."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_LAUNCHER = re.compile(
    r"^(?:python[\d.]*|pypy[\d.]*|bash|sh|dash|zsh|env|nohup|nice|ionice|time|timeout|taskset|stdbuf|setsid|sudo"
    r"|torchrun|deepspeed|accelerate|accelerate-launch|ray|uv|uvx|poetry|pdm|pixi|hatch|pipenv|conda|mamba|micromamba"
    r"|numactl|srun|mpirun|mpiexec|mpiexec\.hydra|horovodrun|colossalai|nsys|ncu|py-spy|memray|strace|doctor|rlhfdoctor)$"
)
_LAUNCHER_MODULE = re.compile(
    r"^(?:torch\.distributed\.(?:run|launch)|torch\.distributed\.elastic\..*|accelerate\.commands\..*"
    r"|deepspeed(?:\.launcher\..*)?|ray(?:\..*)?|memray|coverage|pdb|debugpy|cProfile|trace)$"
)
_SUBCOMMAND = frozenset({"run", "launch", "job", "submit", "exec", "profile", "record", "watch"})
_SCRIPT = re.compile(r"\.(?:py|sh|bash)$")
_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w*=")
_NUMBER = re.compile(r"^[\d.,:-]+[smhd]?$")
_FLAG = re.compile(r"^-[A-VYZa-z]+$")
"""Of an interpreter, without a value; -W and -X have one."""
_INTERPRETER = re.compile(r"^(?:python|pypy|bash|sh|dash|zsh)[\d.]*$")


def name_of(command: Sequence[str]) -> str:
    """A short name for a command.

    >>> name_of(["python", "-u", "train_ppo.py", "--x"]), name_of(["bash", "run.sh"])
    ('train_ppo', 'run')
    >>> name_of("python -m torch.distributed.run --nproc_per_node 2 train.py".split())
    'train'
    >>> name_of("accelerate launch --config_file x.yaml -m trl.scripts.grpo".split())
    'trl.scripts.grpo'
    """
    is_value = False
    program = ""
    for index, word in enumerate(command):
        was_value, is_value = is_value, False
        if word in ("-m", "--module"):
            module = command[index + 1] if index + 1 < len(command) else ""
            is_value = _NUMBER.match(module) is not None  # numactl -m 0
            if module and not is_value and not _LAUNCHER_MODULE.match(module) and not _SCRIPT.search(module):
                return module
            continue
        if word == "-c":
            break  # a program as text has no name
        if _SCRIPT.search(word) and not word.startswith("-"):
            return Path(word).stem
        if word.startswith("-"):
            flag = _INTERPRETER.match(program) is not None and _FLAG.match(word) is not None
            is_value = "=" not in word and word != "--" and not flag
            continue
        if was_value or _ASSIGNMENT.match(word) or _NUMBER.match(word) or word in _SUBCOMMAND:
            continue
        program = Path(word).name
        if not _LAUNCHER.match(program) and not _LAUNCHER_MODULE.match(word):
            return Path(word).stem
    return Path(command[0]).stem if command else "run"
