"""Output of commands: a page as wide as the terminal, plain without one, to standard output or to a file."""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlhfdoctor import cache
from rlhfdoctor.errors import DoctorError, UsageError
from rlhfdoctor.files.read import Refused, read_bytes
from rlhfdoctor.files.write import replace
from rlhfdoctor.i18n.message import ENGLISH, Language, Message, joined, quoted, say
from rlhfdoctor.report.sanitize import clean, shown
from rlhfdoctor.units import MIB

if TYPE_CHECKING:
    from rich.console import Console

_SHOWN_AFTER_S, _SHOWN_EVERY_S = 1.0, 0.2
_NAME_COLUMNS = 24
"""Of a file's name behind the progress: with it the line fits 80 columns."""
_LANGUAGE = f"{__name__}.language"
_RULES = f"{__name__}.rules"
"""Where the context of a command keeps its language, and the folders of its further rules."""


def language_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--lang`; the default is the environment's language."""

    def chosen(context: click.Context, _option: click.Parameter, value: str | None) -> str:
        from rlhfdoctor.i18n.language import preferred

        choose_language(context, value or preferred())
        return value or preferred()

    from rlhfdoctor.i18n.language import languages

    return click.option(
        "--lang", type=click.Choice(languages()), callback=chosen, help="Language of the report.  [default: by LANG]"
    )(command)


def choose_language(context: click.Context, name: str) -> None:
    """Sets the language of a command."""
    context.meta[_LANGUAGE] = name


def rules_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--rules`; the sentences of these rules are in the language of the command, too."""

    def chosen(context: click.Context, _option: click.Parameter, value: tuple[str, ...]) -> tuple[Path, ...]:
        context.meta[_RULES] = tuple(map(Path, value))
        return tuple(map(Path, value))

    return click.option(
        "--rules",
        type=click.Path(exists=True, file_okay=False),
        multiple=True,
        callback=chosen,
        metavar="DIR",
        help="Folder of rules in addition to the bundled ones; repeatable.",
    )(command)


def language() -> Language:
    """The language of the command that runs: of its --lang, the project file, else the environment.

    Raises:
        RuleError: a catalogue of the language is damaged.
    """
    from rlhfdoctor.i18n.language import load_language, preferred

    context = click.get_current_context(silent=True)
    known = context.meta if context is not None else {}
    return load_language(known.get(_LANGUAGE) or preferred(), *known.get(_RULES, ()))


def words() -> Language:
    """The same; English if its catalogue fails."""
    try:
        return language()
    except DoctorError:
        return ENGLISH


def echo(text: str, *, err: bool = False, end: str = "\n", colours: bool = False) -> None:
    """Text for the user: the only way to a screen, which no control character of any input takes.

    Args:
        colours: it is a page of `make_page`, whose own they are.
    """
    stream = sys.stderr if err else sys.stdout
    click.echo(shown(text, colours and stream is not None and stream.isatty()) + end, nl=False, err=err)


def tell(message: Message, *, err: bool = False) -> None:
    """A line for the user, on standard output or standard error."""
    echo(words()(message), err=err)


def make_page(to_file: bool, width: int = 160) -> Console:
    """A console that collects its text; colour only on a terminal without NO_COLOR.

    Args:
        width: in columns, used without a terminal where COLUMNS does not give one.
    """
    from rich.console import Console

    from rlhfdoctor.report.safe_console import SafeConsole

    plain = to_file or sys.stdout is None or not sys.stdout.isatty()
    return SafeConsole(
        file=io.StringIO(),
        force_terminal=not plain,
        no_color=plain or bool(os.environ.get("NO_COLOR")),
        highlight=False,
        width=_columns(os.environ.get("COLUMNS", ""), width) if plain else _columns(str(Console().width), width),
        emoji=False,
        markup=False,
    )


def _columns(text: str, otherwise: int) -> int:
    """The width of a page of so many columns, between those in which sentences can be read."""
    return min(max(int(text), 40), 160) if text.isascii() and text.isdigit() and len(text) < 9 else otherwise


def text_of(page: Console) -> str:
    """What was printed on it."""
    return page.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def trimmed(page: Console) -> str:
    """The same without the blanks that tables leave at the ends of lines."""
    return "\n".join(line.rstrip() for line in text_of(page).splitlines()) + "\n"


def write(text: str, out: str | None, *, colours: bool = False) -> None:
    """To the file, or to standard output (None, `-`); `colours` for a page of `make_page`, whose own they are.

    Raises:
        UsageError: it cannot be written.
    """
    if out in (None, "-"):
        if sys.stdout is None:
            raise UsageError(say("standard output is closed; use --out FILE"))
        try:
            sys.stdout.write(shown(text, colours=colours and sys.stdout.isatty()))
            sys.stdout.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise UsageError(say("standard output: {error}", error=error.strerror)) from None
        return
    write_bytes(shown(text).encode("utf-8", "backslashreplace"), Path(out))


_DEVICES = ("/dev", "/dev/fd", "/dev/pts", "/proc/self/fd")
"""Folders in which only the system puts links; /dev/shm is open to everyone."""


def _is_stream(target: Path) -> bool:
    """Whether it is written as it is opened: a device or stream of the system's, or a pipe of this user's."""
    if str(target.parent) in _DEVICES and target.exists():
        return True
    try:
        info = target.lstat()
    except OSError:
        return False
    return stat.S_ISFIFO(info.st_mode) and info.st_uid == os.geteuid()


def write_bytes(data: bytes, target: Path) -> None:
    """A binary file, reported on standard error.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        if _is_stream(target):
            with target.open("wb") as stream:
                stream.write(data)
        elif target.is_symlink():  # in a folder of another user it may lead anywhere
            raise Refused("is a link; name the file itself", target)
        else:
            replace(target, data, mode=0o666 & ~_umask())
    except OSError as error:
        raise UsageError(joined(quoted(f"--out {target}"), quoted(error.strerror), by=": ")) from None
    tell(say("wrote {file}", file=str(target)), err=True)


_RECORDED = ("run.json", "command.sh", "orders.json", "versions.txt")
_INPUTS = (
    *(".yaml", ".yml", ".toml", ".conf", ".cfg", ".ini", ".sh", ".py", ".log", ".err"),
    *(".trace", ".gz", ".zst", ".xz", ".bz2", ".zip", ".tar", ".tgz"),
)
"""Endings of configuration and logs."""
_OURS = (b'"schema": "rlhfdoctor.', b"sarif")
"""In the first bytes of JSON that is a report."""
_HEAD_BYTES = 4096


def spare_inputs(out: str | None, paths: Iterable[str]) -> None:
    """Checks that a report does not take the place of what it is about.

    Raises:
        UsageError: the file is one of the inputs, configuration or a log in a folder of them, or a part of a recording.
    """
    target = Path(out) if out is not None else None
    try:
        if target is None or not target.is_file():
            return
        is_input = any(Path(path).exists() and Path(path).samefile(target) for path in paths)
        is_recorded = target.name in _RECORDED and (target.parent / "run.json").exists()
        is_below = any(Path(path).is_dir() and Path(path).resolve() in target.resolve().parents for path in paths)
        if is_input or is_recorded or (is_below and _is_read(target)):
            raise UsageError(say("--out {file}: is read for the report; name another file", file=str(target)))
    except OSError as error:
        raise UsageError(joined(quoted(f"--out {target}"), quoted(error.strerror), by=": ")) from None


def _is_read(target: Path) -> bool:
    """Whether a file is configuration or a log, or JSON that is no report."""
    if target.suffix.lower() not in (".json", ".jsonl"):
        return target.suffix.lower() in _INPUTS
    head = read_bytes(target, _HEAD_BYTES)
    return not any(mark in head for mark in _OURS)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


class Progress:
    """A line on standard error while reading takes more than a second; nothing on a pipe or for a quick run."""

    def __enter__(self) -> Progress | None:
        self._begun_s = self._last_s = time.monotonic()
        self._total_bytes: int | None = None
        self._words = words()
        self.shown = False
        if not sys.stderr.isatty():
            return None
        if find_spec("hyperscan") is not None and not cache.has("patterns"):
            self._write(say("preparing the patterns, once after an install: some seconds"))
        return self

    def expect(self, total_bytes: int) -> None:
        """How many bytes there will have been at the end."""
        self._total_bytes = total_bytes

    def __call__(self, name: str, count: int) -> None:
        """A file was read on; `count` bytes were read of all of them."""
        now = time.monotonic()
        if now - self._begun_s < _SHOWN_AFTER_S or now - self._last_s < _SHOWN_EVERY_S:
            return
        self._last_s = now
        rate = count / (now - self._begun_s)
        size, file = count / MIB, name[-_NAME_COLUMNS:]
        if self._total_bytes is None:
            read = say("reading {size:,.0f} MiB, {rate:,.0f} MiB/s  {file}", size=size, rate=rate / MIB, file=file)
        else:
            read = say(
                "reading {size:,.0f} of {total:,.0f} MiB, {rate:,.0f} MiB/s, {left:,.0f} s left  {file}",
                size=size,
                total=self._total_bytes / MIB,
                rate=rate / MIB,
                left=max(self._total_bytes - count, 0) / max(rate, 1),
                file=file,
            )
        self._write(read)

    def _write(self, message: Message) -> None:
        self.shown = True
        sys.stderr.write(f"\r\x1b[K{clean(self._words(message))}")
        sys.stderr.flush()

    def __exit__(self, *_error: object) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
