"""What no text of the doctor may hold: keys, tokens, passwords, by their form, their place or their name.

The recorder, reports and `doctor bundle` cut the same, also where a text is escaped, encoded, coloured or wrapped.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from rlhfdoctor.privacy.below import cut_below
from rlhfdoctor.privacy.given import cut_given
from rlhfdoctor.privacy.names import cut_named, is_ending, is_figure, is_no_value, is_random
from rlhfdoctor.privacy.pairs import cut_pairs
from rlhfdoctor.privacy.sheet import Edit, Sheet
from rlhfdoctor.privacy.tokens import cut_tokens
from rlhfdoctor.privacy.views import through_views

SECRET = "[secret]"
_IN_NAME = re.compile(
    r"(?i)--?[\w.-]*(?:secret|passw|credential|api[_-]?key|access[_-]?key|private[_-]?key)[\w.-]*"
    r"|--?(?:[\w.-]{0,80}[._-])?(?:pass|pw|auth|cookies?|webhook(?:[_-]url)?)"
)
_NO_VALUE = re.compile(r"(?i)-.*|[01]|yes|no")
_MANY = re.compile(
    r"(?i)--?[\w.-]{0,80}(?:(?:api|access|secret)[_-]?keys|(?:api|access|auth|hf|hub|git)[_-]?tokens|secrets|passwords)"
    r"|--?tokens"
)
"""A flag with a secret in each word behind it."""
_LEAST_LETTERS = 6
"""A shorter secret is not looked for inside of other words."""
_LEAST_LISTED = 16
_LONGEST_SECRET = 4096
_GROUPS = ("parts", "double", "single", "bare", "value")
Found = Callable[[str], object]


def cut_secrets(text: str, found: Found = len) -> str:
    """The text without secrets; `found` is called with each.

    >>> cut_secrets("pip install --index-url https://me:pw@host/simple && HF_TOKEN=hf_abcdefghijklmnop python t.py")
    'pip install --index-url https://[secret]@host/simple && HF_TOKEN=[secret] python t.py'
    """
    return through_views(text, functools.partial(cut_on, found=found))


def shortened(text: str, letters: int) -> str:
    """At most so many characters, counted when the secrets are out: the beginning of a secret has not its form.

    >>> shortened("login failed for hf_abcdefghijklmnop", 26)
    'login failed for [secret]'
    """
    return cut_secrets(text[: letters + _LONGEST_SECRET])[:letters]


def cut_on(sheet: Sheet, found: Found) -> None:
    """The same on a sheet, as it is written there."""
    cut = functools.partial(_cut, found)
    cut_tokens(sheet, cut)
    cut_pairs(sheet, cut)
    cut_below(sheet, cut)
    cut_given(sheet, cut)
    cut_named(sheet, cut)


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
    if not (is_ending(flag) or _IN_NAME.fullmatch(flag)) or is_figure(flag, value):
        return False
    return not (_NO_VALUE.fullmatch(value) or is_no_value(value))


@functools.lru_cache(maxsize=4096)
def is_secret(name: str, value: str) -> bool:
    """Whether a value is cut after a name and an equals sign; dumps repeat the same pairs thousands of times.

    >>> is_secret("WANDB_API_KEY", "Zq7abcdefghi"), is_secret("NCCL_DEBUG", "INFO")
    (True, False)
    """
    return len(value) >= _LEAST_LETTERS and SECRET in cut_secrets(f"{name}={value}")


def _cut_by_flag(words: Iterable[str]) -> list[str]:
    """Words without the values of flags that name a secret, in the same word or in the next."""
    found, before, flag = list[str](), "", ""
    for word in words:
        name, mark, value = word.partition("=")
        flag = word if word.startswith("-") else flag
        if (before.startswith("-") and word and hides(before, word)) or _is_listed(flag, word):
            found.append(SECRET)
        elif mark and hides(name if name.startswith("-") else f"--{name}", value):
            found.append(f"{name}={SECRET}")
        else:
            found.append(word)
        before = word
    return found


def _is_listed(flag: str, word: str) -> bool:
    """Whether a word is one of the secrets behind a flag for several."""
    is_listed = len(word) >= _LEAST_LISTED and word[0] != "-" and _MANY.fullmatch(flag) is not None
    return is_listed and is_random(word) and not is_no_value(word)


def _cut(found: Found, match: re.Match[str]) -> Iterator[Edit]:
    """A secret in place of a match's groups, of all of it where it has none."""
    names = [name for name in _GROUPS if name in match.re.groupindex and match[name]]
    numbers: Sequence[str | int] = names or range(1, match.re.groups + 1) or (0,)
    for number in numbers:
        value = (match[number] or "").strip()
        if value and value != SECRET:
            begin = match.start(number) + match[number].index(value)
            found(value)
            yield begin, begin + len(value), SECRET
