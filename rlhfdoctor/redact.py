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
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:\\+n|\r?\n)[ \t]{0,40}(?:[\w+/=]{8,200}|(?:Proc-Type|DEK-Info|Version|Comment): [^\n]{0,80})?(?=\\|\r|\n|\"|$))*"
    r"(?:(?:\\+n|\r?\n)[ \t]{0,40}-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
    r"|(?<![\w.-])(?:hf_[A-Za-z0-9]{16,}|sk[-_](?:live_|test_|ant-|proj-)?[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abprs]-[\w-]{10,}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|AKID[A-Za-z0-9]{13,}|LTAI[0-9A-Za-z]{12,}|AIza[\w-]{30,}|nvapi-[\w-]{20,}|pypi-A[\w-]{20,}|npm_[A-Za-z0-9]{20,}|dckr_pat_[\w-]{16,}|ya29\.[\w-]{16,}"
    r"|(?:r8|gsk)_[A-Za-z0-9]{20,}|tskey-auth-[\w-]{10,}|eyJ[\w-]{8,4096}\.[\w-]{8,4096}\.[\w-]{0,4096})"
)
_NAMED = re.compile(
    r"""(?ix)
    (?<![a-z0-9])(?P<name>[a-z0-9_.-]{0,80}?
      (?:api[_-]?key|access[_-]?key(?:[_-]?(?:id|secret))?|secret(?:[_-]?(?:id|key|access[_-]?key))?|client[_-]?secret|private[_-]?key(?:[_-]id)?|client[_-]key[_-]data|account[_-]?key
        |(?:openai|s3|storage|encryption|wandb|swanlab|azure|oss|cos)[_.-]?key|pg?passw(?:or)?d|passw(?:or)?d|pwd|passphrase|credentials?|use_wandb|use_swanlab|token|密码|密钥|口令))
    (?![a-z0-9])
    (?P<joint>(?:\\*["']|["']?\])?[ \t]{0,8}(?:[=:：]|%3D|,(?=[ ]?\\*["'])|[ \t])[ \t]{0,8})
    (?P<value>b?\\*(?P<quote>["'])(?P<quoted>[^"'\\\n]{4,500})|(?P<bare>[^\s"',;\\)}\]]{4,500}))
    """
)
_NO_SECRET = re.compile(
    r"(?i)(?:none|null|true|false|\$\{?\w+\}?|<.*|optional\[?.*|\[secret.*|online|offline|disabled)"
)
_FIGURE_TOKEN = re.compile(
    r"(?i)(?:pad|eos|bos|unk|mask|sep|cls|max|min|num|total|prompt|response|new|avg|per|special|image|stop|next)[_.-]?token$"
)
_GIVEN = (
    re.compile(r"\b(?:wandb|swanlab|huggingface-cli|hf|modelscope)\s+login\b[^\n]{0,200}?\s(?:-k\s+|--token[ =]|--key[ =])?([\w-]{10,})"),
    re.compile(r"\b(?:wandb|swanlab)\.login\(\s*(?:key|api_key)?\s*=?\s*[\"']([\w-]{10,})"),
    re.compile(r"\b(?:docker|helm)\s+[^\n]{0,200}?\blogin\b[^\n]{0,200}?(?:-p|--password)[ =](\S+)"),
    re.compile(r"\bcurl\b[^\n]{0,300}?\s(?:-u|--user)[ =]?(\S+:\S+)"),
    re.compile(r"\bmysql\b[^\n]{0,200}?\s-p(\S{4,})|\bredis-cli\b[^\n]{0,200}?\s-a\s+(\S+)"),
    re.compile(r"(?i)[\"']?name[\"']?:\s{0,8}[\"']?\w{0,80}(?:KEY|TOKEN|SECRET|PASSWORD)\w{0,40}[\"']?,?\s{1,40}[\"']?value[\"']?:\s{0,8}[\"']?([^\s\"']+)"),
    re.compile(r"(?i)\b(?:proxy-)?authorization\\*[\"']?\s{0,4}[:=]\s{0,4}\\*[\"']?(?:(?:bearer|basic|token|digest)(?:\s+|%20))?([^\s\"',}]{6,})"),
    re.compile(r"(?i)\bbearer\s+(?=[\w.~+/=-]{0,200}\d)([\w.~+/=-]{8,})"),
    re.compile(r"(?i)\b(?:set-)?cookie:([^\n]+)"),
    re.compile(r"(?i)(?<=[?&])(?:sig|signature|key|token|x-amz-signature|x-amz-security-token|accesskeyid)=([^&\s\"']+)"),
    re.compile(r"(?:hooks\.slack\.com/services|/bot/v2/hook)/(\S+)"),
)  # fmt: skip
_FLAG = re.compile(r"-{0,2}[A-Za-z][\w.-]{1,60}")
_IN_URL = re.compile(r"(?<=://)[^\s/@\"'<>]{0,256}:?[^\s/@\"'<>]{1,512}(?=@)")
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
)  # fmt: skip
_HOSTS = (
    re.compile(r"(?i)(?:\b|_)(?:host(?:name)?|node_?(?:name|list)?|batchhost|SLURMD_NODENAME|master[_-]addr|rdzv[_-]endpoint)[\"']?\s{0,4}[=: ]\s{0,4}[\"']?([A-Za-z][\w.-]{3,62})"),
    re.compile(r"(?m)^(?:[A-Z][a-z]{2} +\d{1,2} [\d:]{8}|20\d\d-\d\d-\d\dT[\d:.,+-]{8,24}Z?) ([\w.-]{1,63}) (?:kernel|systemd|dockerd|kubelet|slurmd|[\w-]{1,40}\[\d+\]):"),
    re.compile(r"(?m)^(?:\([^)\n]{0,80}\) ?)?([A-Za-z][\w.-]{1,62}):\d+:\d+ \[\d+\] NCCL"),
    re.compile(r"\bsrun: error: ([\w.-]{2,63}):|\bON ([\w.-]{2,63}) CANCELLED|(?m:^Linux ([\w.-]{2,63}) \d)|\b(ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})\b"),
    re.compile(r"(?m)^\(?[\w.-]{0,40}\)? ?\[?[a-z_][\w-]{2,31}@([\w.-]{1,63})(?=[:\s])"),
    re.compile(r"(?<![\w.-])([a-z0-9][a-z0-9.-]{0,250}\.(?:internal|local|lan|corp|cluster|intra))\b"),
)  # fmt: skip
_PATH = re.compile(r"(?<!memcg=)(?<!stats for )(?<![\w./$}-])(?<!:/)/(?:[\w.+@=~-]{1,255}/)+[\w.+@=~-]*")
_COMMON_USERS = frozenset(
    ["root", "ubuntu", "ray", "admin", "nobody", "user", "users", "app", "worker", "docker", "jovyan", "runner", "default", "git", "rank", "nccl", "torch", "cuda", "train", "data", "vllm", "verl", "openrlhf", "deepspeed", "sglang", "node", "kernel", "signal", "memory", "python", "error", "actor", "critic", "model", "models", "true", "false", "none", "null", "step", "loss", "name", "unknown"]
)  # fmt: skip
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
    r"(?i)home|users|tmp|root|opt|mnt|dev|shm|data|datasets?|workspace|app|code|srv|ckpts?|checkpoints?|models?|logs?|outputs?|results?|runs?|src|scripts?|examples?|config|ray|session[_-].*"
    r"|global_step.*|step[_-]?\d+|rank[_-]?\d+|epoch[_-]?\d+|actor|critic|ref|reference|reward|.*\d(?:\.\d+)?b(?:[-_].*)?|anaconda3|miniconda3|miniforge3|\.cache|\.local|\.conda|envs?|lib|bin|python3.*|hub|snapshots"
)
_FRAMEWORKS = re.compile(
    r"(?i)openrlhf|verl|vllm|sglang|trl|deepspeed|easyr1|simplerl.*|megatron.*|transformers|torch|pytorch|third_party|__w|gloo|nccl|accelerate|peft|flash_attn|xformers|triton|ray|site-packages|dist-packages|kubepods.*"
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
                name = next((group for group in match.groups() if group), "").rstrip(".-")
                if name.lower() not in _COMMON_USERS and len(name) >= _LEAST_LETTERS and not name.isdigit():
                    self._token("user", name)
        for pattern in _HOSTS:
            for match in pattern.finditer(text):
                self.learn_host(next((group for group in match.groups() if group), "").rstrip(".-"))
        self._names = None

    def learn_host(self, name: str, *, surely: bool = False) -> None:
        """Notes a host by name; a plain word only if it is `surely` one, since it would be replaced everywhere."""
        named = surely or re.search(r"[\d.-]", name)
        if (
            len(name) > _LEAST_LETTERS
            and named
            and name.lower() not in _COMMON_USERS
            and not _NO_HOST.fullmatch(name)
            and not _IP4.fullmatch(name)
        ):
            self._token("host", name)
            self._names = None

    def text(self, text: str) -> str:
        """The text with tokens in place of names, and without secrets."""
        for pattern in (_SECRETS, _IN_URL):
            text = pattern.sub(self._secret, text)
        for pattern in _GIVEN:
            text = pattern.sub(self._given, text)
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

    def _given(self, match: re.Match[str]) -> str:
        """A secret by its place; what stands around it stays."""
        number = next(place for place in range(1, len(match.groups()) + 1) if match[place])
        if _NO_SECRET.fullmatch(match[number]):
            return match[0]
        begin, end = match.start(number) - match.start(), match.end(number) - match.start()
        return match[0][:begin] + self._count("secret", SECRET) + match[0][end:]

    def _named(self, match: re.Match[str]) -> str:
        """A secret by the name before it."""
        name, joint, value = match["name"], match["joint"], match["quoted"] or match["bare"]
        marked = any(sign in joint for sign in "=:：,") or "%3D" in joint or match["quoted"] is not None
        is_path = value.startswith("/") and value.count("/") > 1 and not re.search(r"[+=]", value)
        if (
            _NO_SECRET.fullmatch(value)
            or _FIGURE_TOKEN.search(name)
            or is_path
            or (value.startswith("-") and joint[-1:] in " \t")
        ):
            return match[0]
        if "token" in name.lower() and (re.fullmatch(r"[\d.,]+", value) or len(value) < 8):
            return match[0]
        if not marked and not (name.startswith("-") or re.search(r"\d", value)):
            return match[0]
        if name.lower().endswith(("use_wandb", "use_swanlab")) and len(value) < 10:
            return match[0]
        begin = match.start("quoted" if match["quoted"] else "bare") - match.start()
        end = match.end("quoted" if match["quoted"] else "bare") - match.start()
        return match[0][:begin] + self._count("secret", SECRET) + match[0][end:]

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
            framework = _FRAMEWORKS.fullmatch(part)
            if not stays and not framework:
                hidden.append(part)
                continue
            if hidden:
                found.append(self._token("path", "/".join(hidden)))
                hidden, changed = [], True
            if framework:
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
