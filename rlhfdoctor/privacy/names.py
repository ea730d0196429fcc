"""Secrets by the name beside them: `NAME=value`, `--flag value`, YAML, JSON, tables, calls, sentences.

Settings that only sound alike (`--input_key`, `max_token_len`, `tokenizer`) stay.
"""

from __future__ import annotations

import functools
import re

from rlhfdoctor.privacy.form import compiled
from rlhfdoctor.privacy.sheet import Find, Sheet

_NAMES = (
    r"api[_-]?keys?|access[_-]?keys?(?:[_-]?(?:id|secret))?|secret(?:[_-]?(?:id|key|access[_-]?key))?|client[_-]?secret"
    r"|private[_-]?key(?:[_-]id)?|client[_-]key[_-]data|account[_-]?key|shared[_-]?access[_-]?key|subscription[_-]?key"
    r"|(?:openai|s3|storage|encryption|wandb|swanlab|azure|oss|cos|app|license|signing|master|root|ssh|unseal)"
    r"[_. -]?key|unseal key \d|(?:pg|ssh|db|sudo|become|root|user|bind|smtp|ldap|mail)[_-]?pass"
    r"|pg?passw(?:or)?d|passw(?:or)?d|passwort|kennwort|csrf"
    r"|pwd|passphrase|passcode|passwd|credentials?|use_wandb|use_swanlab|token|auth[_-]?key|authkey|x-csrftoken"
    r"|contraseña|senha|de[ -]passe|пароль|パスワード|비밀번호"
    r"|密码|密碼|密钥|密鑰|口令|令牌|私钥|凭证|验证码|授权码|访问码"
)
"""How the name of a secret ends."""
_STEMS = [
    "key",
    "secret",
    "passw",
    "pwd",
    "passphrase",
    "passcode",
    "pass=",
    "pass:",
    "-pass ",
    'pass"',
    "pass'",
    "license",
    "cred",
    "use_wandb",
    "use_swanlab",
    "token",
    "auth",
    "salt",
    "cookie",
    "kennwort",
    "csrf",
    "contraseña",
    "senha",
    "passe",
    "пароль",
    "パスワード",
    "비밀번호",
    "密码",
    "密碼",
    "密钥",
    "密鑰",
    "口令",
    "令牌",
    "私钥",
    "凭证",
    "验证码",
    "授权码",
    "访问码",
    *(mark + short for mark in "_.-" for short in ("pw", "sk", "ak")),
    *(short + mark for short in ("pw", "pat") for mark in "=:\"'"),
    *(f"{before}pat{mark}" for before in "_.-" for mark in "=:\"' "),
]
"""What each of the names has in it, in small letters."""
_CLOSING = r"(?:\\{0,16}[\"']|[\"']?\])?(?:\s?[\])】」》])?"
_OPENING = (
    r"(?:&\w{1,40}[ \t]{1,4}|!!?\w{1,40}[ \t]{1,4})?(?:SecretStr\()?(?:b|f|r|u)?[【「《“(（\[]?(?:\"{3}|'{3}|\$(?='))?"
)
_PAIR = r"(?(slash)(?!)|(?:\\{1,16}[\"'](?=\w)|\\[^\n]))"
"""An escape inside of quotes that are not escaped themselves: where they are, a backslash ends the value."""
_SHELL = r"\\{1,4}(?!&(?:quot|apos|lt|gt|[#]))(?:[^\s\w\"'/\\,;)}\]]|[;,)}\]](?=\w)|(?=[A-Z])(?-i:[A-Z]))"
"""An escape of the shell; those of JSON end the value."""
NAMED = rf"""(?ix)
    (?<![a-z0-9_.$-])(?<!\$\{{)(?P<name>[a-z0-9_.-]{{0,100}}?
        (?:key|secret|passw|passphrase|passcode|pass|pwd|credential|creds?(?![a-z])|use_wandb|use_swanlab|token|auth|salt|cookie|kennwort|csrf|license
        |(?:unseal|api|access|secret|license)[ ]key(?:[ ]\d)?|contraseña|senha|de[ -]passe
        |пароль|パスワード|비밀번호
        |密码|密碼|密钥|密鑰|口令|令牌|私钥|凭证|验证码|授权码|访问码|[_.-](?:pw|sk|ak|pat)(?![a-z0-9_.-])|(?<![a-z0-9_.-])(?:pw|pat)(?![a-z0-9_.-]))
        [a-z0-9_.-]{{0,40}})(?![a-z0-9_.-])
    (?P<joint>{_CLOSING}[ \t]{{0,8}}
        (?:->|={{1,2}}>|→|[:?+]?=>?|:[ ]?(?:str|bytes|SecretStr|str[ ]?\|[ ]?None|Optional\[str\])[ ]?=
        |[:：＝]|\.{{2,200}}[ \t]|[ ]value=|%3D|[|│]|,(?=[ ]?\\{{0,16}}["'])
        |(?:(?:is|was):?|provided:)(?=[ :])|是|为|[ \t]|(?=[【「《“]))
        (?:[ \t]{{0,4}}[|>][+-]?[ \t]{{1,4}}|[ \t]-[ \t])?
        (?:[ \t]{{0,8}}|[ \t]{{0,8}}\\\r?\n[ \t]{{0,40}})(?:\x1b\[[\d;]{{0,20}}m)?{_OPENING})
    (?=(?P<parts>(?:'[^'\\\s]{{1,200}}'(?="\w)|"[^"\\\s]{{1,200}}"(?='\w)){{1,8}}
            (?:'[^'\\\s:,{{}}]{{1,200}}'|"[^"\\\s:,{{}}]{{1,200}}"))
        |b?(?P<slash>\\{{1,16}})?(?:"(?P<double>(?:[^"\\\n]|{_PAIR}){{4,500}})|'(?P<single>(?:[^'\\\n]|{_PAIR}){{4,500}}))
        |(?P<bare>(?:(?!&\w{{1,40}}=)[^\s"',;\\)}}\]，。；、】」》”）│]|{_SHELL}){{4,500}}))
    """
IN_BLOCK = rf"""(?imx)
    (?:^|(?<=["'(>=]))(?P<indent>[ \t]{{0,60}}(?:-[ ])?)["']?
    (?P<name>[\w.-]{{0,80}}?(?:{_NAMES}|tokens|passwords|secrets))["']?[ \t]{{0,4}}
    :[ \t]{{0,8}}(?:[|>][+-]?\d?|&\w{{1,40}})?[ \t]{{0,8}}\r?\n
    (?P<value>(?:(?P=indent)[ \t]{{1,20}}[^\s\\][^\n"]{{0,4000}}(?:\n|\Z|(?="))
        |(?P=indent)-[ ][^\n"]{{1,4000}}(?:\n|\Z|(?="))){{1,40}})
    """
_MAPPING = re.compile(r"(?m)^\s*(?:- )?[\"']?[\w.-]{1,60}[\"']?:(?:\s|$)")
_NO_SECRET = re.compile(
    r"(?i)(?:value:|desc:|none|null|nil|true|false|\$\{?\w+\}?|\$\(.*|%\w+%|<.*|optional\[?.*|\[?secret\].*|\[secret.*|online|offline"
    r"|disabled|enabled|str|bytes|string|required|missing|empty|redacted|\*+|x{3,}|\.{3,}|…)"
)
_FIGURE_TOKEN = re.compile(
    r"(?i)(?:pad|eos|bos|unk|mask|sep|cls|max|min|num|total|prompt|response|new|avg|per|special|image|stop|next)"
    r"[_.-]?token$"
)
_RESTS = re.compile(r"\[secret\](?:\\[nrt]){0,8}\\(?![nrt]).")
"""What was cut up to an escape."""
_IS_KEY = r"\\{0,16}[\"'][ \t]{0,4}:"
_FIGURES = re.compile(r"[\d.,]+")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_PARTS = frozenset(
    [
        "token",
        "secret",
        "secrets",
        "password",
        "passwd",
        "pwd",
        "pass",
        "auth",
        "credential",
        "credentials",
        "cred",
        "creds",
        "salt",
        "cookie",
        "apikey",
        "license",
    ]
)
_SURE_PARTS = frozenset(["secret", "secrets", "password", "passwd", "pwd", "credential", "credentials", "creds"])
_OTHER_PARTS = frozenset(
    [
        "id",
        "ids",
        "name",
        "path",
        "file",
        "dir",
        "folder",
        "url",
        "uri",
        "type",
        "mode",
        "len",
        "length",
        "size",
        "count",
        "level",
        "loss",
        "mask",
        "class",
        "cls",
        "tokens",
        "logger",
        "module",
        "expired",
        "expires",
        "expiration",
        "time",
        "date",
        "cache",
        "hash",
        "digest",
        "hit",
        "method",
        "scheme",
        "provider",
        "header",
    ]
)
"""A name with one of these after the secret's word is the name of something else."""
_NO_SECRET_KEYS = frozenset(
    ["cache", "graph", "hash", "object", "public", "pub", "sort", "primary", "foreign", "index"]
)
"""Of a name that ends in `key`: what it is the key of, if that is no secret."""
_LEAST_KEY, _LEAST_SHORT_NAMED = 20, 16
_LEAST_RANDOM = 8
_LEAST_LETTERS = 4
_LEAST_PASSWORD = 6
_LEAST_TOKEN = 8
_CHANGES = re.compile(r"[a-z](?=[A-Z\d])|[A-Z](?=\d)|\d(?=[A-Za-z])")


def cut_named(sheet: Sheet, cut: Find) -> None:
    """Cuts what a name makes a secret; `cut` gets matches whose groups are the secrets."""
    sheet.edit(compiled(NAMED), lambda match: cut(match) if _is_named(match) else (), _STEMS, below=1)
    if any(stem in sheet.text for stem in (":\n", ":\r", "|\n", ">\n", "-\n", ": \n", "|\r")):
        sheet.edit(compiled(IN_BLOCK), lambda match: cut(match) if _is_block(match) else (), _STEMS, below=_LINES_BELOW)


_LINES_BELOW = 8


def is_ending(flag: str) -> bool:
    """Whether a flag ends like the name of a secret."""
    return re.fullmatch(r"--?[\w.-]{0,160}", flag) is not None and _ends(flag)


def _ends(name: str) -> bool:
    return compiled(rf"(?i)(?:{_NAMES})$").search(name) is not None


def is_no_value(value: str) -> bool:
    """Whether a value is not a secret: a variable, a place, a word for nothing."""
    return _NO_SECRET.fullmatch(value) is not None or _is_path(value)


def is_figure(name: str, value: str) -> bool:
    """Whether a name that ends in `token` is one of the tokenizer's, or its value a count."""
    return _FIGURE_TOKEN.search(name) is not None or ("token" in name.lower() and _FIGURES.fullmatch(value) is not None)


@functools.lru_cache(maxsize=1024)
def is_random(value: str) -> bool:
    """Whether a value looks drawn by chance: letters and figures that change often.

    >>> is_random("9f86d081884c7d659a2f"), is_random("global_step_100"), is_random("enabled-by-default")
    (True, False, False)
    """
    return any(
        len(part) >= _LEAST_RANDOM and len(_CHANGES.findall(part)) >= max(2, len(part) // 7)
        for part in re.split(r"[-_./+=~]", value)
    )


def _is_named(match: re.Match[str]) -> bool:
    """Whether the text after the name of a secret is one."""
    name, joint = match["name"], match["joint"]
    value = match[_value_of(match)]
    quoted = match["bare"] is None
    marked = quoted or re.search(r"[=:：,|│】「《“是为]|->|%3D|\.\.", joint) is not None
    low = name.lower()
    is_flag = value.startswith("-") and joint[-1:] in " \t" and not (quoted and re.search("[:=]", joint))
    if quoted and not match["slash"] and _RESTS.match(value):
        return True
    if "," in joint and compiled(_IS_KEY).match(match.string, match.end(_value_of(match))):
        return False  # the key of what follows
    if is_no_value(value) or is_figure(name, value) or is_flag or _is_pattern(value):
        return False
    if (value == "secret" and joint.endswith("[")) or (low == "secret" and _is_mark(match, "name")):
        return False  # it was cut already
    if value.endswith("(") or re.match(r"[A-Za-z_][\w.]*\(", value):
        return False  # a call
    if not _ends(name):
        return (marked or name.startswith("-")) and _is_alike(name, value)
    if re.search(r"(?:is|was):?(?:\s|$)|是|为", joint.strip()):
        return re.search(r"\d", value) is not None
    if "token" in low and (len(value) < _LEAST_TOKEN or ("|" in joint and not is_random(value))):
        return False
    if not marked and not (name.startswith("-") or re.search(r"\d", value)):
        return False
    return not (low.endswith(("use_wandb", "use_swanlab")) and len(value) < 10)


def is_pair(name: str, value: str) -> bool:
    """Whether a value is a secret by a name that is certainly its name.

    >>> is_pair("DB_PASSWORD", "hunter"), is_pair("max_tokens", "4096"), is_pair("HF_TOKEN", "$HF_TOKEN")
    (True, False, False)
    """
    low = name.lower()
    if "[secret]" in value or is_no_value(value) or is_figure(name, value) or _is_pattern(value):
        return False
    if not _ends(name):
        return _is_alike(name, value)
    return not ("token" in low and len(value) < _LEAST_TOKEN) and not low.startswith(("use_wandb", "use_swanlab"))


def _value_of(match: re.Match[str]) -> str:
    return next(name for name in ("parts", "double", "single", "bare") if match[name])


def _is_pattern(value: str) -> bool:
    """Whether a value has escapes, with little beside them."""
    return "\\" in value and len(re.sub(r"\\.|\W", "", value)) < _LEAST_LETTERS


def _is_mark(match: re.Match[str], group: str) -> bool:
    """Whether what was found is what stands for a secret that was cut."""
    begin, end = match.span(group)
    return match.string[max(begin - 1, 0) : end + 1] == "[secret]"


def _is_alike(name: str, value: str) -> bool:
    """Whether a name has a secret's word in it, and the value is a secret's: DB_PASSWORD_PROD=..."""
    parts = [part.lower() for part in _PARTS.findall(name)]
    if parts[-1:] == ["key"] and " " in name:
        return len(value) >= _LEAST_TOKEN and all(re.search(kind, value) for kind in (r"\d", r"[^\W\d_]"))
    if parts[-1:] == ["key"]:
        return len(value) >= _LEAST_KEY and _is_key(value) and not _NO_SECRET_KEYS.intersection(parts)
    if parts[-1:] in (["pw"], ["sk"], ["ak"], ["pat"]):
        return _is_short(parts[-1], value)
    if parts == ["pass"]:
        return re.search(r"\d", value) is not None and re.search(r"[^\W\d]", value) is not None
    at = next((at for at, part in enumerate(parts) if part in _SECRET_PARTS), None)
    if at is None or _OTHER_PARTS.intersection(parts[at + 1 :]) or " " in value:
        return False
    return is_random(value) or (parts[at] in _SURE_PARTS and re.search(r"\d", value) is not None and len(value) >= 6)


def _is_short(name: str, value: str) -> bool:
    """Whether a value is a secret's though only a short name says so: DB_PW=..., OSS_SK=..."""
    if name == "pw":
        kinds = (r"\d", r"[^\W\d_]")
        return len(value) >= _LEAST_PASSWORD and all(re.search(kind, value) for kind in kinds) and not _is_figure(value)
    return len(value) >= _LEAST_SHORT_NAMED and " " not in value and _is_key(value)


def _is_figure(value: str) -> bool:
    return re.fullmatch(r"[-+]?[\d.,]+(?:e[-+]?\d+|[a-z%]{0,3})(?:/\w{1,4})?", value, re.I) is not None


def _is_key(value: str) -> bool:
    """Whether a value is drawn by chance, also where the marks of URL-safe base64 are in it."""
    kinds = (r"[a-z]", r"[A-Z]", r"\d")
    return is_random(value) or (all(re.search(kind, value) for kind in kinds) and is_random(re.sub("[-_]", "", value)))


def _is_block(match: re.Match[str]) -> bool:
    value = match["value"]
    if _is_mark(match, "name") or _MAPPING.search(value):
        return False
    return not (is_figure(match["name"], value.strip()) or is_no_value(value.strip()))


def _is_path(value: str) -> bool:
    return value.startswith("/") and value.count("/") > 1 and not (re.search(r"[+=]", value) or is_random(value))
