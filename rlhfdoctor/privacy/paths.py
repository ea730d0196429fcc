"""Private directories in paths: known words, models, everything from a framework on stay; the rest are tokens."""

from __future__ import annotations

import re
from collections.abc import Callable

PATH = re.compile(r"(?<!memcg=)(?<!stats for )(?<![\w./$}-])(?<!:/)/(?:[\w.+@=~-]{1,255}/){1,64}[\w.+@=~-]{0,255}")
_SYSTEM = frozenset(
    [
        "usr",
        "proc",
        "sys",
        "etc",
        "var",
        "run",
        "lib",
        "lib64",
        "bin",
        "sbin",
        "boot",
        "snap",
        "nix",
        "pypi",
        "artifacts",
        "docker",
        "system.slice",
        "user.slice",
        "slurm",
    ]
)
"""Below these every machine looks alike."""
_KNOWN = re.compile(
    r"(?i)home|users|tmp|root|opt|mnt|dev|shm|data|datasets?|workspace|app|code|srv|ckpts?|checkpoints?|models?|logs?"
    r"|outputs?|results?|runs?|src|scripts?|examples?|config|ray|session[_-].*"
    r"|global_step.*|step[_-]?\d+|rank[_-]?\d+|epoch[_-]?\d+|actor|critic|ref|reference|reward"
    r"|.*\d(?:\.\d+)?b(?:[-_].*)?|anaconda3|miniconda3|miniforge3|\.cache|\.local|\.conda|envs?|lib|bin|python3.*|hub"
    r"|snapshots"
)
_LIBRARIES = re.compile(
    r"(?i)vllm|sglang|deepspeed|megatron.*|transformers|torch|pytorch|third_party|__w|gloo|nccl|accelerate|peft"
    r"|flash_attn|xformers|triton|ray|site-packages|dist-packages|kubepods.*"
)


def hide_path(path: str, token: Callable[[str], str], projects: frozenset[str] = frozenset()) -> str:
    """A path with tokens for what only its owner knows.

    >>> hide_path("/data/acme/ckpt/vllm/x.py", lambda hidden: "path-1")
    '/data/path-1/ckpt/vllm/x.py'
    """
    parts = path.split("/")[1:]
    if parts[0] in _SYSTEM or any(re.fullmatch(r"path-\d+", part) for part in parts):
        return path
    found, hidden, changed = [""], list[str](), False
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        stays = (
            not part
            or _KNOWN.fullmatch(part)
            or (place and parts[place - 1] in ("home", "Users"))
            or (last and "." in part.strip("."))
        )
        library = _LIBRARIES.fullmatch(part) or part.lower() in projects
        if not stays and not library:
            hidden.append(part)
            continue
        if hidden:
            found.append(token("/".join(hidden)))
            hidden, changed = [], True
        if library:
            found += parts[place:]
            break
        found.append(part)
    if hidden:
        found.append(token("/".join(hidden)))
        changed = True
    return "/".join(found) if changed else path
