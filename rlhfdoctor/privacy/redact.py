"""Text without what identifies people or machines: stable tokens for users, hosts, addresses, private paths.

A token keeps the form of what it replaces (an address stays an address), so that logs are read as before. Secrets are
never kept.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from rlhfdoctor.privacy.secrets import SECRET, cut_secrets, cut_words, hides, is_secret

_FLAG = re.compile(r"-{0,2}[A-Za-z][\w.-]{1,60}")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,8}\.[a-z]{2,24}\b", re.I)
_IP4 = re.compile(
    r"(?<![=<>!~]=)(?<![\d.])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?!\d|\.\d)"
)
_IP6 = re.compile(
    r"(?<![\w:])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6})(?![\w:])", re.I
)
_VERSION = re.compile(
    r"(?i)(?:version|cu\d\d|cuda|cudnn|cublas|nccl|driver|nvidia-[\w-]{1,40})[\"']?[\s:@=]{0,4}[\"']?$"
)
_NOT_PRIVATE = re.compile(r"(?:0\.|127\.|255\.|224\.|169\.254\.169\.254)")
_USERS = (
    re.compile(r"/(?:home|Users|export/home|data/home|mnt/home|share/home)/([A-Za-z0-9._-]+)"),
    re.compile(r"(?i)(?:\b|_)(?:USER|LOGNAME|USERNAME|SUDO_USER|WANDB_ENTITY|JOB_ACCOUNT)=[\"']?([A-Za-z_][\w.-]+)"),
    re.compile(r"[\"']user(?:name)?[\"']:\s{0,4}[\"']([A-Za-z_][\w.-]+)"),
    re.compile(r"\buid=\d+\(([\w.-]+)\)|\bUserId=([\w.-]+)\("),
    re.compile(r"\blogged in as: ([\w.-]+)|\bfor user ([\w.-]+)|\bpublickey for ([\w.-]+)|wandb\.ai/([\w.-]+)/"),
    re.compile(r"\blogged in as: [\w.-]+ \(([\w.-]+)\)"),
    re.compile(r"(?m)^\(?[\w.-]{0,40}\)? ?\[?([a-z_][\w-]{2,31})@[\w.-]{1,63}(?=[:\s])"),
    re.compile(r"\b(?:ssh|scp|sftp|rsync)\b[^\n]{0,80}?\s([A-Za-z_][\w.-]{1,31})@(?=[\w.-])"),
    re.compile(r"[A-Z]:[\\/]Users[\\/]([A-Za-z0-9._-]+)"),
)
_HOSTS = (
    re.compile(
        r"(?i)(?:\b|_)(?:host(?:name)?|node_?(?:name|list)?|batchhost|SLURMD_NODENAME|master[_-]addr|rdzv[_-]endpoint)"
        r"[\"']?\s{0,4}[=: ]\s{0,4}[\"']?([A-Za-z][\w.-]{3,62})"
    ),
    re.compile(
        r"(?m)^(?:[A-Z][a-z]{2} +\d{1,2} [\d:]{8}|20\d\d-\d\d-\d\dT[\d:.,+-]{8,24}Z?) ([\w.-]{1,63}) "
        r"(?:kernel|systemd|dockerd|kubelet|slurmd|[\w-]{1,40}\[\d+\]):"
    ),
    re.compile(r"(?m)^(?:\([^)\n]{0,80}\) ?)?([A-Za-z][\w.-]{1,62}):\d+:\d+ \[\d+\] NCCL"),
    re.compile(
        r"\bsrun: error: ([\w.-]{2,63}):|\bON ([\w.-]{2,63}) CANCELLED|(?m:^Linux ([\w.-]{2,63}) \d)"
        r"|\b(ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})\b"
    ),
    re.compile(r"(?m)^\(?[\w.-]{0,40}\)? ?\[?[a-z_][\w-]{2,31}@([\w.-]{1,63})(?=[:\s])"),
    re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9.-]{0,250}\.(?:internal|local|lan|corp|cluster|intra))\b"),
)
_PATH = re.compile(r"(?<!memcg=)(?<!stats for )(?<![\w./$}-])(?<!:/)/(?:[\w.+@=~-]{1,255}/)+[\w.+@=~-]*")
_COMMON_USERS = frozenset(
    [
        "root",
        "ubuntu",
        "ray",
        "admin",
        "nobody",
        "user",
        "users",
        "app",
        "worker",
        "docker",
        "jovyan",
        "runner",
        "default",
        "git",
        "rank",
        "nccl",
        "torch",
        "cuda",
        "train",
        "data",
        "vllm",
        "deepspeed",
        "sglang",
        "node",
        "kernel",
        "signal",
        "memory",
        "python",
        "error",
        "actor",
        "critic",
        "model",
        "models",
        "true",
        "false",
        "none",
        "null",
        "step",
        "loss",
        "name",
        "unknown",
    ]
)
_NO_HOST = re.compile(
    r"(?i).*\.(?:py|log|cc|cpp|cu|json|ya?ml|sh|txt|out|err|h|so|md)$|v?\d+(?:\.\d+)*$|local(?:host)?(?:\.|$)|.*_.*=.*"
)
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
_LEAST_LETTERS = 3


class Redactor:
    """Learns the names of users and hosts from all texts, then writes each with the same token everywhere.

    Example:
        >>> redactor = Redactor()
        >>> redactor.learn("cd /home/alice/proj on node gpu-17: host=gpu-17")
        >>> redactor.text("alice@gpu-17 10.1.2.3 HF_TOKEN=hf_abcdefghijklmnop123")
        'user-1@host-1 192.0.2.1 HF_TOKEN=[secret]'
    """

    def __init__(self, hide: Iterable[str] = (), known: Iterable[str] = ()) -> None:
        """`hide`: more words, such as a project's name, in any case, also inside longer words; `known`: frameworks."""
        self._projects = frozenset(word.lower() for word in known)
        self.counts: Counter[str] = Counter()
        """Kind -> how many places were changed."""
        self._tokens: dict[str, dict[str, str]] = {
            kind: {} for kind in ("user", "host", "address", "email", "path", "word")
        }
        self._names: re.Pattern[str] | None = None
        for word in hide:
            if word.strip():
                self._token("word", word.strip().lower())

    @property
    def kinds(self) -> dict[str, int]:
        """Kind -> how many different ones have a token."""
        return {kind: len(tokens) for kind, tokens in self._tokens.items() if tokens}

    def learn(self, text: str) -> None:
        """Notes the users and hosts that a text names."""
        for pattern in _USERS:
            for match in pattern.finditer(text):
                name = next((group for group in match.groups() if group), "").rstrip(".-")
                if (
                    name.lower() not in _COMMON_USERS
                    and name.lower() not in self._projects
                    and len(name) >= _LEAST_LETTERS
                    and not name.isdigit()
                ):
                    self._token("user", name)
        for pattern in _HOSTS:
            for match in pattern.finditer(text):
                self.learn_host(next((group for group in match.groups() if group), "").rstrip(".-"))
        self._names = None

    def learn_host(self, name: str, *, surely: bool = False) -> None:
        """Notes a host by name; a plain word only if `surely` one, since it would be replaced everywhere."""
        named = surely or re.search(r"[\d.-]", name)
        if (
            len(name) > _LEAST_LETTERS
            and named
            and name.lower() not in _COMMON_USERS
            and name.lower() not in self._projects
            and not _NO_HOST.fullmatch(name)
            and not _IP4.fullmatch(name)
        ):
            self._token("host", name)
            self._names = None

    def text(self, text: str) -> str:
        """The text with tokens in place of names, and without secrets."""
        text = cut_secrets(text, self._secret)
        text = _EMAIL.sub(lambda m: self._count("email", f"{self._token('email', m[0])}@example.org"), text)
        text = _IP4.sub(self._address, text)
        text = _IP6.sub(self._address, text)
        text = _PATH.sub(self._path, text)
        names = self._pattern()
        return names.sub(self._name, text) if names is not None else text

    def value(self, value: Any) -> Any:
        """The same for what JSON holds; a list's item after a flag that names a secret is one."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self._item(str(key), item) for key, item in value.items()}
        if isinstance(value, list):
            if all(isinstance(item, str) for item in value):
                cut = cut_words(value)
                self.counts["secret"] += sum(one != two for one, two in zip(value, cut, strict=True))
                value = cut
            return [self._item(str(before), item) for before, item in zip(["", *value], value, strict=False)]
        return value

    def _item(self, name: str, value: Any) -> Any:
        if isinstance(value, str) and (hides(name, value) or (_FLAG.fullmatch(name) and is_secret(name, value))):
            self._secret(value)
            return SECRET
        return self.value(value)

    def _secret(self, _value: str) -> None:
        self.counts["secret"] += 1

    def _address(self, match: re.Match[str]) -> str:
        found = match[0]
        before = match.string[max(match.start() - 48, 0) : match.start()]
        if _NOT_PRIVATE.match(found) or found.startswith(("::", "fe80")) or _VERSION.search(before):
            return found
        if ":" in found and not re.search(r"\d", found):
            return found  # a scope of C++
        known = self._tokens["address"]
        if found not in known:
            number = len(known)
            nets = ("192.0.2", "198.51.100", "203.0.113")
            v4 = (
                f"{nets[number // 254]}.{number % 254 + 1}"
                if number < 762
                else f"10.254.{number // 250 % 250}.{number % 250 + 1}"
            )
            known[found] = f"2001:db8::{number + 1:x}" if ":" in found else v4
        return self._count("address", known[found])

    def _path(self, match: re.Match[str]) -> str:
        """Unknown directories become tokens; known words, models, and everything from a framework on stay."""
        parts = match[0].split("/")[1:]
        if parts[0] in _SYSTEM or any(re.fullmatch(r"path-\d+", part) for part in parts):
            return match[0]
        found, hidden, changed = [""], list[str](), False
        for place, part in enumerate(parts):
            last = place == len(parts) - 1
            stays = (
                not part
                or _KNOWN.fullmatch(part)
                or (place and parts[place - 1] in ("home", "Users"))
                or (last and "." in part.strip("."))
            )
            library = _LIBRARIES.fullmatch(part) or part.lower() in self._projects
            if not stays and not library:
                hidden.append(part)
                continue
            if hidden:
                found.append(self._token("path", "/".join(hidden)))
                hidden, changed = [], True
            if library:
                found += parts[place:]
                break
            found.append(part)
        if hidden:
            found.append(self._token("path", "/".join(hidden)))
            changed = True
        return self._count("path", "/".join(found)) if changed else match[0]

    def _name(self, match: re.Match[str]) -> str:
        hidden = self._tokens["word"].get(match[0].lower())
        if hidden is not None:
            return self._count("word", hidden)
        kind = next(kind for kind in ("host", "user") if match[0] in self._tokens[kind])
        return self._count(kind, self._tokens[kind][match[0]])

    def _pattern(self) -> re.Pattern[str] | None:
        if self._names is None:
            names = sorted((name for kind in ("host", "user") for name in self._tokens[kind]), key=len, reverse=True)
            hidden = "|".join(map(re.escape, sorted(self._tokens["word"], key=len, reverse=True)))
            whole = rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, names))})(?![A-Za-z0-9])" if names else ""
            if hidden or whole:
                self._names = re.compile("|".join(part for part in (f"(?i:{hidden})" if hidden else "", whole) if part))
        return self._names

    def _token(self, kind: str, value: str) -> str:
        known = self._tokens[kind]
        return known.setdefault(value, f"{kind}-{len(known) + 1}")

    def _count(self, kind: str, token: str) -> str:
        self.counts[kind] += 1
        return token
