"""What no text of the doctor may hold: keys, tokens, passwords, by their form, their place or their name.

The recorder and `doctor bundle` cut the same; settings that only sound alike (`--input_key`, `max_token_len`,
`tokenizer`) stay.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence

from rlhfdoctor.privacy.tokens import cut_tokens

SECRET = "[secret]"
_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:(?:\\+n|\r?\n)[ \t]{0,40}(?:[\w+/=]{8,200}|(?:Proc-Type|DEK-Info|Version|Comment): [^\n]{0,80})?"
    r"(?=\\|\r|\n|\"|$))*"
    r"(?:(?:\\+n|\r?\n)[ \t]{0,40}-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_NAMES = (
    r"api[_-]?key|access[_-]?key(?:[_-]?(?:id|secret))?|secret(?:[_-]?(?:id|key|access[_-]?key))?|client[_-]?secret"
    r"|private[_-]?key(?:[_-]id)?|client[_-]key[_-]data|account[_-]?key"
    r"|(?:openai|s3|storage|encryption|wandb|swanlab|azure|oss|cos)[_.-]?key|pg?passw(?:or)?d|passw(?:or)?d|pwd"
    r"|passphrase|credentials?|use_wandb|use_swanlab|token|密码|密钥|口令"
)
"""How the name of a secret ends."""
_NAMED = re.compile(
    rf"""(?ix)
    (?<![a-z0-9])(?P<name>[a-z0-9_.-]{{0,80}}?(?:{_NAMES}))
    (?![a-z0-9])
    (?P<joint>(?:\\*["']|["']?\])?[ \t]{{0,8}}(?:[=:：]|%3D|,(?=[ ]?\\*["'])|[ \t])[ \t]{{0,8}})
    (?P<value>b?\\*(?P<quote>["'])(?P<quoted>[^"'\\\n]{{4,500}})|(?P<bare>[^\s"',;\\)}}\]]{{4,500}}))
    """
)
_STEM = re.compile(r"(?i)key|secret|passw|pwd|passphrase|credential|use_wandb|use_swanlab|token|密码|密钥|口令")
"""What each of the names has in it."""
_NO_SECRET = re.compile(
    r"(?i)(?:none|null|true|false|\$\{?\w+\}?|<.*|optional\[?.*|\[secret.*|online|offline|disabled)"
)
_FIGURE_TOKEN = re.compile(
    r"(?i)(?:pad|eos|bos|unk|mask|sep|cls|max|min|num|total|prompt|response|new|avg|per|special|image|stop|next)"
    r"[_.-]?token$"
)
_FIGURES = re.compile(r"[\d.,]+")
_GIVEN = (
    re.compile(
        r"\b(?:wandb|swanlab|huggingface-cli|hf|modelscope)\s+login\b[^\n]{0,200}?\s"
        r"(?:-k\s+|--token[ =]|--key[ =])?([\w-]{10,})"
    ),
    re.compile(r"\b(?:wandb|swanlab)\.login\(\s*(?:key|api_key)?\s*=?\s*[\"']([\w-]{10,})"),
    re.compile(r"\b(?:docker|helm)\s+[^\n]{0,200}?\blogin\b[^\n]{0,200}?(?:-p|--password)[ =](\S+)"),
    re.compile(r"\bcurl\b[^\n]{0,300}?\s(?:-u|--user)[ =]?(\S+:\S+)"),
    re.compile(r"\bmysql\b[^\n]{0,200}?\s-p(\S{4,})|\bredis-cli\b[^\n]{0,200}?\s-a\s+(\S+)"),
    re.compile(
        r"(?i)[\"']?name[\"']?:\s{0,8}[\"']?\w{0,80}(?:KEY|TOKEN|SECRET|PASSWORD)\w{0,40}"
        r"[\"']?,?\s{1,40}[\"']?value[\"']?:\s{0,8}[\"']?([^\s\"']+)"
    ),
    re.compile(
        r"(?i)\b(?:proxy-)?authorization\\*[\"']?\s{0,4}[:=]\s{0,4}\\*[\"']?"
        r"(?:(?:bearer|basic|token|digest)(?:\s+|%20))?([^\s\"',}]{6,})"
    ),
    re.compile(r"(?i)\bbearer\s+(?=[\w.~+/=-]{0,200}\d)([\w.~+/=-]{8,})"),
    re.compile(r"(?i)\b(?:set-)?cookie:([^\n]+)"),
    re.compile(
        r"(?i)(?<=[?&])(?:sig|signature|key|token|x-amz-signature|x-amz-security-token|accesskeyid)=([^&\s\"']+)"
    ),
    re.compile(r"(?:hooks\.slack\.com/services|/bot/v2/hook)/(\S+)"),
)
_IN_URL = re.compile(r"(?<=://)[^\s/@\"'<>]{0,256}:?[^\s/@\"'<>]{1,512}(?=@)")
_FLAG = re.compile(rf"(?i)-{{1,2}}[a-z0-9_.-]{{0,80}}?(?:{_NAMES})")
_IN_NAME = re.compile(r"(?i)--?[\w.-]*(?:secret|passw|credential|api[_-]?key|access[_-]?key|private[_-]?key)[\w.-]*")
_NO_VALUE = re.compile(r"(?i)-.*|[01]|yes|no")
_LEAST_LETTERS = 6
"""A shorter secret is not looked for inside of other words."""
Found = Callable[[str], object]


def cut_secrets(text: str, found: Found = len) -> str:
    """The text without secrets; `found` is called with each.

    >>> cut_secrets("pip install --index-url https://me:pw@host/simple && HF_TOKEN=hf_abcdefghijklmnop python t.py")
    'pip install --index-url https://[secret]@host/simple && HF_TOKEN=[secret] python t.py'
    """

    def whole(match: re.Match[str]) -> str:
        return _cut(match, 0, found)

    def given(match: re.Match[str]) -> str:
        number = next(place for place in range(1, len(match.groups()) + 1) if match[place])
        return match[0] if _NO_SECRET.fullmatch(match[number]) else _cut(match, number, found)

    def named(match: re.Match[str]) -> str:
        return _cut(match, "quoted" if match["quoted"] else "bare", found) if _is_named(match) else match[0]

    text = _IN_URL.sub(whole, cut_tokens(_KEY_BLOCK.sub(whole, text), whole))
    for pattern in _GIVEN:
        text = pattern.sub(given, text)
    return _in_lines(_STEM, text, functools.partial(_NAMED.sub, named))


def _in_lines(sign: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
    """The text with those lines changed that have a sign in them: most have none, and a search for that is cheap."""
    parts, done = list[str](), 0
    while match := sign.search(text, done):
        begin, end = text.rfind("\n", done, match.start()) + 1 or done, text.find("\n", match.end())
        end = len(text) if end < 0 else end
        parts += [text[done:begin], change(text[begin:end])]
        done = end
    return "".join([*parts, text[done:]])


def cut_words(argv: Sequence[str]) -> list[str]:
    """The argument list without secrets.

    >>> cut_words(["x", "--hf_token=abc", "--use_wandb", "k1", "--input_key", "text", "data.max_token_len=9"])
    ['x', '--hf_token=[secret]', '--use_wandb', '[secret]', '--input_key', 'text', 'data.max_token_len=9']
    """
    found: list[str] = []
    cut_secrets(" ".join(argv), found.append)
    words = _cut_by_flag(map(cut_secrets, argv) if found else argv)
    for secret in found:
        if len(secret) >= _LEAST_LETTERS:
            words = [word.replace(secret, SECRET) for word in words]
    return words


@functools.lru_cache(maxsize=32)
def cut_line(text: str) -> str:
    """The same for a command line as one text.

    >>> cut_line("python t.py --use_wandb k1 --x 2 api_key=abcd --pwd x")
    'python t.py --use_wandb [secret] --x 2 api_key=[secret] --pwd [secret]'
    """
    return " ".join(_cut_by_flag(cut_secrets(text).split(" ")))


def hides(flag: str, value: str) -> bool:
    """Whether a word is a secret by the flag before it, however short it is.

    >>> hides("--s3_key", "AKIA"), hides("--input_key", "text"), hides("--use_wandb", "true")
    (True, False, False)
    """
    if not (_FLAG.fullmatch(flag) or _IN_NAME.fullmatch(flag)) or _is_figure(flag, value):
        return False
    return not (_NO_SECRET.fullmatch(value) or _NO_VALUE.fullmatch(value) or _is_path(value))


def is_secret(name: str, value: str) -> bool:
    """Whether a value is cut after a name and an equals sign.

    >>> is_secret("WANDB_API_KEY", "Zq7abcdefghi"), is_secret("NCCL_DEBUG", "INFO")
    (True, False)
    """
    return len(value) >= _LEAST_LETTERS and SECRET in cut_secrets(f"{name}={value}")


def _cut_by_flag(words: Iterable[str]) -> list[str]:
    """Words without the values of flags that name a secret, in the same word or in the next."""
    found, before = list[str](), ""
    for word in words:
        name, mark, value = word.partition("=")
        if before.startswith("-") and word and hides(before, word):
            found.append(SECRET)
        elif mark and hides(name if name.startswith("-") else f"--{name}", value):
            found.append(f"{name}={SECRET}")
        else:
            found.append(word)
        before = word
    return found


def _cut(match: re.Match[str], group: int | str, found: Found) -> str:
    """The match with a secret in place of one of its groups; the text around it stays."""
    found(match[group])
    begin, end = match.start(group) - match.start(), match.end(group) - match.start()
    return match[0][:begin] + SECRET + match[0][end:]


def _is_named(match: re.Match[str]) -> bool:
    """Whether the text after the name of a secret is one."""
    name, joint, value = match["name"], match["joint"], match["quoted"] or match["bare"]
    marked = any(sign in joint for sign in "=:：,") or "%3D" in joint or match["quoted"] is not None
    if _NO_SECRET.fullmatch(value) or _is_figure(name, value) or _is_path(value):
        return False
    if value.startswith("-") and joint[-1:] in " \t":
        return False
    if "token" in name.lower() and len(value) < 8:
        return False
    if not marked and not (name.startswith("-") or re.search(r"\d", value)):
        return False
    return not (name.lower().endswith(("use_wandb", "use_swanlab")) and len(value) < 10)


def _is_figure(name: str, value: str) -> bool:
    """Whether a name that ends in `token` is one of the tokenizer's, or its value a count."""
    return _FIGURE_TOKEN.search(name) is not None or ("token" in name.lower() and _FIGURES.fullmatch(value) is not None)


def _is_path(value: str) -> bool:
    return value.startswith("/") and value.count("/") > 1 and not re.search(r"[+=]", value)
