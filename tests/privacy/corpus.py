"""Planted secrets: every form of `forms.py` in every container in which a run's files hold text.

A container is a way of writing and its reverse, which is independent of the redactor: a secret leaks if a part of it can
be read in the redacted text, as it is or after the reverse.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import random
import re
import string
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.privacy import forms

LETTERS = {
    "A": string.ascii_letters + string.digits,
    "L": string.ascii_letters,
    "a": string.ascii_lowercase + string.digits,
    "U": string.ascii_uppercase + string.digits,
    "T": string.ascii_uppercase + "234567",
    "X": string.hexdigits[:10].upper() + "ABCDEF",
    "h": string.hexdigits[:16],
    "d": string.digits,
    "b": string.ascii_letters + string.digits + "-_",
    "B": string.ascii_letters + string.digits + "+/",
}
_SYLLABLES = ("bra", "dun", "fel", "gor", "hix", "jem", "kol", "lum", "nev", "pid", "quo", "rast", "sil", "tov", "wex", "zum")
_SURNAMES = ("wang", "zhaol", "mueller", "ivanova", "okafor", "tanaka", "xiongj", "heqing")
_CHINESE = ("张伟强", "李晓雷", "欧阳明", "陈建国", "赵子龙", "王雪梅")
_HOSTS = ("dgx", "gpu-node", "a100", "hgx", "node", "worker")
_PREFIX = "(ActorModelRayActor pid=216590, ip=10.31.4.7) "
_WIDTH = 80


@dataclass(frozen=True)
class Planted:
    """A secret in its surroundings, and which texts may not be read any more."""

    name: str
    kind: str
    text: str
    secrets: tuple[str, ...]


@dataclass(frozen=True)
class Container:
    """How a text is written, and how it is read back."""

    name: str
    write: Callable[[str, tuple[str, ...]], str]
    read: Callable[[str], str]


def _word(name: str, chance: random.Random) -> str:
    """An invented word of a kind."""
    syllables = [chance.choice(_SYLLABLES) for _ in range(3)]
    user = chance.choice(_SURNAMES) + chance.choice(("", "_j", ".lei", "07"))
    pw = f"{syllables[0].title()}{chance.randrange(10, 99)}{syllables[1]}{chance.choice('-_.')}{syllables[2]}"
    made = {
        "word": "".join(syllables),
        "org": f"{syllables[0]}{syllables[1]}-ai",
        "user": user,
        "Full": f"{syllables[0].title()}.{user.title()}",
        "full": f"{syllables[0].title()} {user.title()}",
        "group": f"{syllables[0]}{syllables[2]}-lab",
        "chinese": chance.choice(_CHINESE),
        "domain": f"{syllables[0]}{syllables[1]}.com",
        "DOMAIN": f"{syllables[0]}{syllables[1]}.COM".upper(),
        "host": f"{chance.choice(_HOSTS)}-{syllables[1]}-{chance.randrange(10, 99)}",
        "n": str(chance.randrange(10, 250)),
        "pw": pw,
        "b64pw": base64.b64encode(f"user:{pw}{pw}".encode()).decode(),
        "basic": base64.b64encode(f"train:{pw}".encode()).decode(),
    }
    return made[name]


def make(template: str, seed: str) -> tuple[str, tuple[str, ...]]:
    """The text of a form, and the secrets in it.

    >>> make("a={{«{d3}»}}", "x")[0].startswith("a={")
    True
    """
    chance = random.Random(seed)

    def some(match: re.Match[str]) -> str:
        if match[0] in ("{{", "}}"):
            return match[0][0]
        counted = re.fullmatch(r"(\w)(\d+)", match[1])
        if counted is None or counted[1] not in LETTERS:
            return _word(match[1], chance)
        letters = LETTERS[counted[1]]
        while True:
            made = "".join(chance.choice(letters) for _ in range(int(counted[2])))
            if made[-1].isalnum() and (len(made) < 16 or counted[1] in "Ld" or any(map(str.isdigit, made))):
                return made

    filled = re.sub(r"\{\{|\}\}|\{(\w+)\}", some, template)
    secrets = [line for part in re.findall("«(.*?)»", filled, re.S) for line in part.split("\n")]
    return re.sub("[«»]", "", filled), tuple(secrets)


def plant(seed: str = "1") -> Iterator[Planted]:
    """Every form once."""
    groups = {
        "token": forms.TOKENS,
        "named": forms.NAMED,
        "address with a secret": forms.ADDRESSES,
        "hook": forms.HOOKS,
        "command": forms.COMMANDS,
        "file": forms.FILES,
        "header": forms.HEADERS,
        "bare key": forms.BARE,
    }
    for kind, group in groups.items():
        for name, template in group.items():
            around = f"loaded «{template}» from cache" if kind == "token" else template
            yield Planted(name, kind, *make(around, f"{seed} {kind} {name}"))
    for group in (forms.PEOPLE, forms.MACHINES):
        for name, (kind, template) in group.items():
            yield Planted(name, kind, *make(template, f"{seed} {kind} {name}"))


def _beside(text: str, change: Callable[[str], str] = str) -> str:
    """Between other lines of a log."""
    before = "2026-11-21 16:27:36,871 INFO worker.py:1405 -- step 3\n"
    return f"{before}{change(text)}\n2026-11-21 16:27:37,001 INFO worker.py:1405 -- step 4\n"


def _json(text: str) -> str:
    return json.dumps({"level": "info", "message": text, "step": 3}, ensure_ascii=False)


def _escaped(text: str) -> str:
    r"""JSON as PHP, Java or careful programs write it: `\/`, and marks and foreign letters as `\u0040`."""
    body = json.dumps(text).replace("/", "\\/")
    return f'{{"message":{re.sub("[@:=&%+]", lambda m: f"{chr(92)}u{ord(m[0]):04x}", body)}}}'


def _unescape(text: str) -> str:
    """What a reader of JSON or Python makes of it, also twice."""
    simple = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

    def one(match: re.Match[str]) -> str:
        return chr(int(match[1] or match[2], 16)) if match[1] or match[2] else simple.get(match[3], match[3])

    for _ in range(3):
        text = re.sub(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", one, text, flags=re.S)
    return text


def _bytes(text: str) -> str:
    got = _unescape(text)
    try:
        return got.encode("latin-1").decode("utf-8", "replace")
    except UnicodeError:
        return got


def _decode_runs(text: str) -> str:
    """Every run of base64, decoded."""
    found = []
    for run in re.findall(r"[A-Za-z0-9+/_-]{8,}={0,2}", text):
        try:
            found.append(base64.b64decode(run.replace("-", "+").replace("_", "/").rstrip("=") + "=" * (-len(run.rstrip("=")) % 4)))
        except (binascii.Error, ValueError):
            continue
    return "\n".join(data.decode("utf-8", "replace") for data in found)


def _coloured(text: str, secrets: tuple[str, ...]) -> str:
    """A code in the middle of each secret, as programs that mark a difference or a search's hit do."""
    for secret in sorted(secrets, key=len, reverse=True):
        half = len(secret) // 2
        text = text.replace(secret, f"{secret[:half]}\x1b[1;31m{secret[half:]}\x1b[0m", 1)
    return text


def _wrapped(text: str, secrets: tuple[str, ...]) -> str:
    """As it is copied from a terminal of 80 columns, with the border inside the first secret of the first line."""
    first, *rest = text.split("\n")
    inside = next((secret for secret in secrets if secret in first), None)
    if inside is not None:
        at = first.index(inside) + max(len(inside) // 2, 1)
        before = (_WIDTH - at % _WIDTH) % _WIDTH
        said = "2026-11-21 16:27:36,871 INFO worker.py:1405 -- after some time of waiting, step"
        first = (said[: before - 1].rpartition(" ")[0].ljust(before) if before > 1 else " " * before) + first
    lines = [line[at : at + _WIDTH] for line in (first, *rest) for at in range(0, max(len(line), 1), _WIDTH)]
    return "\n".join(["-" * _WIDTH, *lines])


def _arguments(text: str, _: tuple[str, ...]) -> str:
    return f"subprocess.CalledProcessError: Command {text.split()!r} returned non-zero exit status 1."


def _prefixed(prefix: str) -> Container:
    def write(text: str, _: tuple[str, ...]) -> str:
        return "\n".join(prefix + line for line in text.split("\n"))

    return Container("", write, lambda text: re.sub(f"(?m)^{re.escape(prefix)}", "", text))


def _quoted(text: str, _: tuple[str, ...]) -> str:
    inside = text.replace("'", "'\\''")
    return f"bash -c '{inside}'"


CONTAINERS = (
    Container("plain line", lambda text, _: _beside(text), str),
    Container("JSON string", lambda text, _: _json(text), _unescape),
    Container("JSON, \\/ and \\uXXXX", lambda text, _: _escaped(text), _unescape),
    Container("JSON in JSON", lambda text, _: json.dumps({"event": _json(text)}, ensure_ascii=False), _unescape),
    Container("URL-encoded", lambda text, _: f"GET /log?message={urllib.parse.quote(text, safe='')}&n=3", urllib.parse.unquote),
    Container("base64", lambda text, _: f"payload: {base64.b64encode(text.encode()).decode()}", _decode_runs),
    Container("colour codes inside", _coloured, lambda text: re.sub(r"\x1b\[[\d;]*m", "", text)),
    Container("wrapped at 80", _wrapped, lambda text: text.replace("\n", "")),
    Container("Ray prefix", (_ray := _prefixed(_PREFIX)).write, _ray.read),
    Container("log prefix", (_log := _prefixed("2026-11-21 16:27:36,871 INFO [rank0] t.py:14 -- ")).write, _log.read),
    Container("YAML value", lambda text, _: "note: |\n" + "\n".join("    " + line for line in text.split("\n")), str),
    Container("shell script", _quoted, lambda text: text.replace("'\\''", "'")),
    Container("Python repr", lambda text, _: f"INFO {({'args': ('x', text), 'n': 1})!r}", _unescape),
    Container("Python bytes", lambda text, _: f"got {text.encode()!r} from pipe", _bytes),
    Container("argument list", _arguments, lambda text: _unescape(re.sub("['\"], ['\"]", " ", text))),
    Container("HTML", lambda text, _: f"<td>{html.escape(text)}</td>", html.unescape),
)


def find_leaks(planted: Planted, container: Container, shown: str) -> list[str]:
    """The secrets of which the redacted text still shows a part: a third, and eight characters at least."""
    readings = {shown, container.read(shown), re.sub(r"\s", "", container.read(shown))}
    return [secret for secret in planted.secrets if any(_shows(reading, secret) for reading in readings)]


def _shows(text: str, secret: str) -> bool:
    size = min(len(secret), max(8, len(secret) // 3))
    return any(secret[at : at + size] in text for at in range(len(secret) - size + 1))
