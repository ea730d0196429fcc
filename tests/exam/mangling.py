"""What people do to a log before they show it: operations on text, the same for the same seed."""

from __future__ import annotations

import html
import json
import random
import re
import textwrap
from collections.abc import Callable

Operation = Callable[[str, random.Random], str]
_WIDTH = 80
_SCREEN_LINES = 50
_LONG = re.compile(r"[\w./=:-]{28,}")
_FULL_WIDTH = (
    (", ", "，"),
    (": ", "："),
    ("; ", "；"),
    (" (", "（"),
    (") ", "）"),
    (",", "，"),
    (":", "："),
    ("(", "（"),
    (")", "）"),
    ("!", "！"),
    ("?", "？"),
)
_SLANTED = (("'", "’"), ('"', "”"), (" - ", " – "), ("...", "…"), ("--", "—"))


def lines_of(text: str) -> list[str]:
    """The lines without their ends; none for an empty text."""
    return text.split("\n")[:-1] if text.endswith("\n") else text.split("\n")


def each(change: Callable[[str, random.Random], str]) -> Operation:
    """An operation on every line for itself."""
    return lambda text, rng: "".join(f"{change(line, rng)}\n" for line in lines_of(text))


def cut_tails(line: str, rng: random.Random) -> str:
    """The last quarter of a long line gives way to dots, at a blank."""
    place = line.rfind(" ", len(line) // 2, int(len(line) * rng.uniform(0.75, 0.9)))
    return line if len(line) < 60 or place < 0 else f"{line[:place]} {rng.choice(['...', '…', '[...]'])}"


def cut_middles(line: str, rng: random.Random) -> str:
    """Some words in the second half of a long line give way to dots."""
    words = line.split(" ")
    if len(line) < 90 or len(words) < 8:
        return line
    start = rng.randrange(len(words) * 3 // 5, len(words) - 2)
    return " ".join([*words[:start], rng.choice(["...", "[...]"]), *words[start + 2 :]])


def cut_names(line: str, _rng: random.Random) -> str:
    """Long paths or ids behind the middle of a line keep their first letters only."""
    return line[: len(line) // 2] + _LONG.sub(lambda m: f"{m[0][:12]}...", line[len(line) // 2 :])


def cut_at_the_edge(line: str, _rng: random.Random) -> str:
    """A terminal that does not wrap: what is right of its edge is not there."""
    return line[:120]


def wrap_words(line: str, _rng: random.Random) -> str:
    """Wrapped at blanks, as mail programs do it."""
    return "\n".join(textwrap.wrap(line, _WIDTH, break_on_hyphens=False, drop_whitespace=True)) or line


def wrap_hard(line: str, _rng: random.Random) -> str:
    """Wrapped at the edge, within words, as terminals do it."""
    return "\n".join(line[start : start + _WIDTH] for start in range(0, max(len(line), 1), _WIDTH))


def indent(line: str, _rng: random.Random) -> str:
    """Indented as a block of code."""
    return f"    {line}"


def quote(line: str, _rng: random.Random) -> str:
    """Quoted in an answer to an answer."""
    return f"> > {line}"


def box(line: str, _rng: random.Random) -> str:
    """Within the frame of a table that a terminal draws."""
    return f"│ {line:<78} │"


def bar(line: str, _rng: random.Random) -> str:
    """Behind the name of a container, as docker compose shows it."""
    return f"trainer-1  | {line}"


def full_width(line: str, _rng: random.Random) -> str:
    """With the punctuation of a Chinese keyboard."""
    for plain, wide in _FULL_WIDTH:
        line = line.replace(plain, wide)
    return line


def slanted(line: str, _rng: random.Random) -> str:
    """With the quotes or dashes of a word processor."""
    for plain, fancy in _SLANTED:
        line = line.replace(plain, fancy)
    return line


def as_html(line: str, _rng: random.Random) -> str:
    """Copied from the source of a page."""
    return html.escape(line).replace("  ", " &nbsp;")


def collapse(line: str, _rng: random.Random) -> str:
    """Copied from a page that shows runs of blanks as one."""
    return re.sub(r"[ \t]+", " ", line.strip())


def docker_json(line: str, _rng: random.Random) -> str:
    """As docker's json-file driver stores it."""
    return json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2025-04-02T15:02:00.117Z"})


def as_markdown(line: str, _rng: random.Random) -> str:
    """As inline code in a list."""
    return f"- `{line}`" if line.strip() else line


def number(text: str, _rng: random.Random) -> str:
    """With line numbers, as an editor shows them."""
    return "".join(f"{index:>6}  {line}\n" for index, line in enumerate(lines_of(text), 212))


def grep_numbers(text: str, _rng: random.Random) -> str:
    """With the file's name or line numbers of `grep -n`."""
    return "".join(f"run.log:{index}:{line}\n" for index, line in enumerate(lines_of(text), 9812))


def one_line(text: str, _rng: random.Random) -> str:
    """A form without lines: every end of a line is a blank."""
    return " ".join(lines_of(text)) + "\n"


def one_string(text: str, _rng: random.Random) -> str:
    """A field of a JSON document."""
    return json.dumps({"status": 200, "message": text}, ensure_ascii=False) + "\n"


def screen(text: str, _rng: random.Random) -> str:
    """One screen: the last lines."""
    return "".join(f"{line}\n" for line in lines_of(text)[-_SCREEN_LINES:])


def line_ends(text: str, _rng: random.Random) -> str:
    """Line ends of Windows, and blanks before them."""
    return "".join(f"{line}  \r\n" for line in lines_of(text))


def quoted_and_wrapped(text: str, rng: random.Random) -> str:
    """Wrapped by a mail program, then quoted."""
    return each(quote)(each(wrap_words)(text, rng), rng)


OPERATIONS: dict[str, Operation] = {
    "tails cut": each(cut_tails),
    "middles cut": each(cut_middles),
    "names cut": each(cut_names),
    "cut at the edge": each(cut_at_the_edge),
    "wrapped at blanks": each(wrap_words),
    "wrapped within words": each(wrap_hard),
    "indented": each(indent),
    "quoted": each(quote),
    "quoted, wrapped": quoted_and_wrapped,
    "boxed": each(box),
    "behind a bar": each(bar),
    "numbered": number,
    "grep -n": grep_numbers,
    "full-width": each(full_width),
    "slanted quotes": each(slanted),
    "HTML": each(as_html),
    "blanks collapsed": each(collapse),
    "docker's JSON": each(docker_json),
    "one JSON string": one_string,
    "no line ends": one_line,
    "one screen": screen,
    "line ends": line_ends,
    "Markdown": each(as_markdown),
}


def mangled(text: str, name: str, seed: str) -> str:
    """The text after an operation; the seed decides where it cuts."""
    return OPERATIONS[name](text, random.Random(f"{name}:{seed}"))
