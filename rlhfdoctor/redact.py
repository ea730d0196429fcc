"""Text without what identifies people and machines: stable tokens for users, hosts, addresses and private paths; secrets are never kept.

A token keeps the shape of what it stands for (an address stays an address), so that logs are read as before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

SECRET = "[secret]"
_SECRETS = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|LTAI[0-9A-Za-z]{12,}|AIza[\w-]{30,}|nvapi-[\w-]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*)",
    re.S,
)
_NAMED = re.compile(
    r"""(?ix)
    (?P<name>
      (?<![a-z0-9_-]) (?:-{1,2})? (?:[a-z0-9]{1,32}[_-]){0,6}
      (?:api[_-]?key|access[_-]?key(?:[_-]id)?|secret(?:[_-]?key|[_-]?access[_-]?key)?|private[_-]?key|passw(?:or)?d|pwd(?=["']?\s*[=:])|passphrase|credentials?
        |(?:hf|hub|huggingface|access|auth|api|bearer|wandb|github|gitlab|slack|session|refresh|login|swanlab|modelscope)[_-]?token|token(?=["']?\s*[=:]\s*["']?[a-z0-9_-]*\d))
      (?![a-z0-9])
    )
    (?P<joint> ["']? [ \t]* (?:[=:]|[ \t]|["'],\s*) [ \t]* ["']? (?:bearer[ \t]+)? )
    (?P<value> [^\s"',;\\)}\]]{6,} )
    """
)
_FLAG = re.compile(r"-{0,2}[A-Za-z][\w.-]{1,60}")
_BEARER = re.compile(r"(?i)\b(authorization|bearer)(\s*[:=]?\s*(?:bearer|basic)?\s+)([\w.~+/=-]{8,})")
_IN_URL = re.compile(r"(?<=://)[^\s/:@]{0,256}:[^\s/]{1,512}(?=@)")
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){0,6}\.[a-z]{2,12}\b", re.I)
_IP4 = re.compile(
    r"(?<![=<>!~]=)(?<![\w.<>])(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(?:25[0-5]|2[0-4]\d|1?\d?\d)(?![\w-]|\.\d)"
)
_IP6 = re.compile(
    r"(?<![\w:])(?:(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}|(?:[0-9a-f]{1,4}:){1,6}(?::[0-9a-f]{1,4}){1,6})(?![\w:])", re.I
)
_NOT_PRIVATE = re.compile(r"(?:0\.|127\.|255\.|224\.|169\.254\.169\.254)")
_USERS = (
    re.compile(r"/(?:home|Users|export/home|data/home|mnt/home)/([A-Za-z0-9._-]+)"),
    re.compile(r"\b(?:USER|LOGNAME|USERNAME|SUDO_USER)[\"']?\s*[=:]\s*[\"']?([A-Za-z_][\w.-]+)"),
    re.compile(r"\buid=\d+\(([\w.-]+)\)"),
    re.compile(r"(?m)^\(?[\w.-]{0,40}\)? ?\[?([a-z_][\w-]{2,31})@[\w.-]{1,63}(?=[:\s])"),
    re.compile(r"\b(?:ssh|scp|sftp|rsync)\b[^\n]{0,80}?\s([A-Za-z_][\w.-]{1,31})@(?=[\w.-])"),
    re.compile(r"[A-Z]:[\\/]Users[\\/]([A-Za-z0-9._-]+)"),
)
_HOSTS = (
    re.compile(r"\b(?:[Hh]ost(?:[Nn]ame)?|HOSTNAME|[Nn]ode(?:[Nn]ame|_?[Ll]ist)?|SLURMD_NODENAME|SLURM_(?:JOB_)?NODELIST|MASTER_ADDR)[\"']?\s*[=:]\s*[\"']?([A-Za-z][\w.-]{3,62})"),
    re.compile(r"(?m)^[A-Z][a-z]{2} +\d{1,2} [\d:]{8} ([\w.-]+) (?:kernel|systemd|dockerd|kubelet|slurmd|[\w-]+\[\d+\]):"),
    re.compile(r"(?m)^(?:\([^)]*\) ?)?([A-Za-z][\w.-]+):\d+:\d+ \[\d+\] NCCL"),
    re.compile(r"(?m)^\(?[\w.-]{0,40}\)? ?\[?[a-z_][\w-]{2,31}@([\w.-]{1,63})(?=[:\s])"),
    re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9-]{0,62}(?:\.[a-z0-9-]{1,63}){0,6}\.(?:internal|local|lan|corp|cluster|intra|svc\.cluster\.local))\b"),
)  # fmt: skip
_PATH = re.compile(r"(?<!memcg=)(?<!stats for )(?<![\w.:/$}-])/(?:[\w.+@=~-]{1,255}/)+[\w.+@=~-]*")
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
    ]
)
_NO_HOST = re.compile(
    r"(?i).*\.(?:py|log|cc|cpp|cu|json|ya?ml|sh|txt|out|err|h|so|md)$|v?\d+(?:\.\d+)*$|local(?:host)?(?:\.|$)|.*_.*=.*"
)
_SYSTEM = frozenset(
    [
        "usr",
        "opt",
        "proc",
        "sys",
        "dev",
        "etc",
        "var",
        "tmp",
        "run",
        "lib",
        "lib64",
        "bin",
        "sbin",
        "boot",
        "root",
        "home",
        "Users",
        "snap",
        "nix",
        "pypi",
        "artifacts",
        "site-packages",
    ]
)
_HOME_DIRS = frozenset(["anaconda3", "miniconda3", "miniforge3", ".cache", ".local", ".conda", ".ssh", "ray_results"])
_LEAST_LETTERS = 3


class Redactor:
    """Learns the names of users and hosts from all texts, then writes each with the same token everywhere.

    Example:
        >>> redactor = Redactor()
        >>> redactor.learn("cd /home/alice/proj on node gpu-17: host=gpu-17")
        >>> redactor.text("alice@gpu-17 10.1.2.3 HF_TOKEN=hf_abcdefghijklmnop123")
        'user-1@host-1 192.0.2.1 HF_TOKEN=[secret]'
    """

    def __init__(self, hide: Iterable[str] = ()) -> None:
        """`hide`: further words, such as a project's name; in any case, also inside of longer words."""
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
                if match[1] not in _COMMON_USERS and len(match[1]) >= _LEAST_LETTERS:
                    self._token("user", match[1])
        for pattern in _HOSTS:
            for match in pattern.finditer(text):
                self.learn_host(match[1].rstrip(".-"))
        self._names = None

    def learn_host(self, name: str) -> None:
        """Notes a host by name; plain words are left alone, since they would be replaced everywhere."""
        if (
            len(name) > _LEAST_LETTERS
            and re.search(r"[\d.-]", name)
            and not _NO_HOST.fullmatch(name)
            and not _IP4.fullmatch(name)
        ):
            self._token("host", name)
            self._names = None

    def text(self, text: str) -> str:
        """The text with tokens in place of names, and without secrets."""
        for pattern in (_SECRETS, _IN_URL):
            text = pattern.sub(self._secret, text)
        text = _BEARER.sub(lambda m: m[1] + m[2] + self._secret(m), text)
        text = _NAMED.sub(self._named, text)
        text = _EMAIL.sub(lambda m: self._count("email", f"{self._token('email', m[0])}@example.org"), text)
        text = _IP4.sub(self._address, text)
        text = _IP6.sub(self._address, text)
        text = _PATH.sub(self._path, text)
        names = self._pattern()
        return names.sub(self._name, text) if names is not None else text

    def value(self, value: Any) -> Any:
        """The same for what JSON holds; a list's item behind a flag that names a secret is one."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self._item(str(key), item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._item(str(before), item) for before, item in zip(["", *value], value, strict=False)]
        return value

    def _item(self, name: str, value: Any) -> Any:
        if (
            isinstance(value, str)
            and len(value) > 5
            and _FLAG.fullmatch(name)
            and self.text(f"{name}={value}") != f"{name}={value}"
            and SECRET in self.text(f"{name}={value}")
        ):
            return self._count("secret", SECRET)
        return self.value(value)

    def _secret(self, _match: re.Match[str]) -> str:
        return self._count("secret", SECRET)

    def _named(self, match: re.Match[str]) -> str:
        value = match["value"]
        if value.startswith(("[secret", "$", "<", "-", "/", "None", "null", "true", "false", "True", "False")) or (":" not in match["joint"] and "=" not in match["joint"] and not re.search(r"\d", value)):  # fmt: skip
            return match[0]
        return match["name"] + match["joint"] + self._count("secret", SECRET)

    def _address(self, match: re.Match[str]) -> str:
        found = match[0]
        if _NOT_PRIVATE.match(found) or found.startswith(("::", "fe80")):
            return found
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
        parts = match[0].split("/")[1:]
        kept = 0
        if parts[0] in ("home", "Users"):
            if len(parts) < 3 or not parts[2] or parts[2] in _HOME_DIRS or parts[2].startswith("."):
                return match[0]
            kept = 2
        elif parts[0] in _SYSTEM:
            return match[0]
        private = "/".join(parts[kept : kept + (1 if kept else min(2, len(parts) - 1))])
        if not private or re.fullmatch(r"path-\d+", private):
            return match[0]
        rest = parts[kept + private.count("/") + 1 :]
        return self._count("path", "/".join(["", *parts[:kept], self._token("path", private), *rest]))

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
