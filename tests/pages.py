"""The documentation's generated parts: screens of commands, figures, the picture, the command reference (`make docs`)."""

from __future__ import annotations

import functools
import io
import os
import pty
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from rlhfdoctor.cli import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "rlhfdoctor" / "docs"
PICTURED = "doctor analyze samples/openrlhf-save-kill/run"
_COLUMNS, _ROWS = 100, 28
"""Of the picture; a longer screen is cut there."""
_SCREEN = re.compile(
    r"(?<=\$ )(doctor (?:analyze|compare|estimate|help|patch|rules)[^\n]*?)( <<'EOF'\n(.*?\n)EOF)?(\n```\n```text\n).*?(?=```)", re.DOTALL
)
"""A command in a block of its own, perhaps with what it reads, and the block of what it prints."""
_FIGURES = re.compile(r"(?<=<!-- figures: )([\w-]+)( -->\n).*?(?=<!-- end of figures -->)", re.DOTALL)
_PLAIN = {"COLUMNS": "80", "LC_ALL": "C.UTF-8", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}


@functools.cache
def _printed(command: str, reads: str | None) -> str:
    """What a command prints: standard output, then standard error."""
    words = [sys.executable, "-m", "rlhfdoctor", *shlex.split(command)[1:]]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **_PLAIN}, input=reads or "", capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).replace(f"{ROOT}/", "")


def filled(text: str) -> str:
    """A page with what its commands print today, and with its figures as the measurements have them."""
    text = _SCREEN.sub(lambda found: f"{found[1]}{found[2] or ''}{found[4]}{_printed(found[1], found[3])}", text)
    return _FIGURES.sub(lambda found: f"{found[1]}{found[2]}{FIGURES[found[1]]()}", text)


def commands_page() -> str:
    """docs/commands.md: every command's --help."""
    lines = ["# Commands", "", "Made by `make docs` from the commands themselves: this is what `--help` prints.", ""]
    lines += [line for words, command in _commands(main, "doctor") for line in (f"## {words}", "", "```text", _help(words, command), "```", "")]
    return "\n".join(lines)


def _commands(command: click.Command, words: str) -> list[tuple[str, click.Command]]:
    below = sorted(command.commands.items()) if isinstance(command, click.Group) else []
    return [(words, command), *(pair for name, one in below for pair in _commands(one, f"{words} {name}"))]


def _help(words: str, command: click.Command) -> str:
    context = click.Context(command, info_name=words, max_content_width=80, terminal_width=80, help_option_names=["-h", "--help"])
    return "\n".join(line.rstrip() for line in command.get_help(context).splitlines())


_SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px; line-height: {line_height}px; }}
.{unique_id}-title {{ font-size: 18px; font-family: sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""
"""Rich's own form without its font, which a browser would fetch from the network."""


def picture() -> str:
    """docs/verdict.svg: the first screen of a verdict, as a terminal of 100 columns shows it."""
    screen = "\n".join(_on_terminal(PICTURED).splitlines()[:_ROWS])
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(f"$ {PICTURED}\n{screen}"), no_wrap=True, crop=True, overflow="crop")
    return console.export_svg(title="doctor analyze", code_format=_SVG, unique_id="verdict")


def _on_terminal(command: str) -> str:
    """What a command prints on a terminal, with its colours."""
    ours, its = pty.openpty()
    environment = {**os.environ, **_PLAIN, "COLUMNS": str(_COLUMNS), "LINES": "50", "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    del environment["NO_COLOR"]
    words = [sys.executable, "-m", "rlhfdoctor", *shlex.split(command)[1:]]
    child = subprocess.Popen(words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=its, stderr=subprocess.DEVNULL)
    os.close(its)
    read: list[bytes] = []
    try:
        while block := os.read(ours, 65536):
            read.append(block)
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    child.wait()
    return b"".join(read).decode().replace("\r\n", "\n")


def _table(file: str, after: str) -> str:
    """The first table of a Markdown file behind a line that holds `after`."""
    lines = (ROOT / file).read_text().splitlines()
    start = next(at for at, line in enumerate(lines) if after in line)
    rows: list[str] = []
    for line in lines[start:]:
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            break
    return "\n".join(rows) + "\n"


_ROUND = re.compile(r"^\|[^|]*\|[^|]*\| own round \d+, unseen \|(.*)\|$", re.MULTILINE)
_SHARE = re.compile(r"\((\d+)/(\d+)\)")


def _unseen() -> str:
    """The sums of tests/exam/ROUNDS.md over our own rounds, each as it was first scored."""
    rounds = [[cell.strip() for cell in row.split("|")] for row in _ROUND.findall((ROOT / "tests/exam/ROUNDS.md").read_text())]

    def share(column: int) -> str:
        counts = [found for row in rounds if (found := _SHARE.search(row[column]))]
        right, asked = (sum(int(found[group]) for found in counts) for group in (1, 2))
        return f"{100 * right / asked:.1f} % ({right} of {asked})"

    incidents = sum(int(row[0]) for row in rounds)
    said = {
        "the first cause named is right": share(1),
        "and is given as the verdict": share(2),
        "the cause is among the first three": share(3),
        "who killed it is right": share(4),
        "where nothing decides, the doctor says so": share(6),
        "a healthy run called dead": share(7),
        "the setting that the report's author changed is proposed": share(8),
    }
    lines = [f"| {incidents} incidents in {len(rounds)} rounds | |", "|---|---:|"]
    return "\n".join([*lines, *(f"| {name} | {figure} |" for name, figure in said.items())]) + "\n"


def _patches() -> str:
    text = (ROOT / "tests/frameworks/MATRIX.md").read_text()
    found = re.search(r"^(\d+) pairs in all, over (\d+) configurations", text, re.MULTILINE)
    assert found, "tests/frameworks/MATRIX.md has its sum in another form"
    return f"{int(found[1]):,} pairs of rule and patch over {found[2]} configurations.\n"


def _secrets() -> str:
    text = (ROOT / "tests/privacy/SECRETS.md").read_text()
    found = re.search(r"^(\d+ forms in \d+ containers).*?: (\d+) texts, of which (\d+) leak \(([\d.]+ %)\)", text, re.MULTILINE)
    assert found, "tests/privacy/SECRETS.md has its figures in another form"
    return f"Measured: {found[1]}, {found[2]} texts with invented secrets, of which {found[3]} leak ({found[4]}).\n"


FIGURES: dict[str, Callable[[], str]] = {
    "unseen": _unseen,
    "exam": lambda: _table("tests/exam/RESULTS.md", "| figure |"),
    "confidence": lambda: _table("tests/exam/RESULTS.md", "held out, all"),
    "left-out": lambda: _table("tests/exam/RESULTS.md", "## One source left out"),
    "budget": lambda: _table("tests/bench/BUDGET.md", "| set | configurations |"),
    "estimators": lambda: _table("tests/bench/BUDGET.md", "| estimator |"),
    "examples": lambda: _table("tests/frameworks/UPSTREAM.md", "| framework |"),
    "patches": _patches,
    "recorder": lambda: _table("tests/bench/RECORDER.md", "| processes |"),
    "forecast": lambda: _table("tests/bench/FORECAST.md", "| runs |"),
    "speed": lambda: _table("tests/bench/RESULTS.md", "| figure |"),
    "secrets": _secrets,
}
"""What stands between `<!-- figures: NAME -->` and `<!-- end of figures -->` in a page."""


def _page(path: Path) -> Callable[[], str]:
    return lambda: filled(path.read_text())


MADE: dict[str, Callable[[], str]] = {
    "rlhfdoctor/docs/commands.md": commands_page,
    "rlhfdoctor/docs/verdict.svg": picture,
}
"""Pages that are generated as a whole."""
FILLED: dict[str, Callable[[], str]] = {
    str(path.relative_to(ROOT)): _page(path)
    for path in (ROOT / "README.md", *sorted(PAGES.glob("*.md")))
    if path.name not in ("commands.md", "catalogue.md", "catalogue.zh.md")
}
"""Pages that people write, with parts that are generated."""
