"""Lines that `doctor watch` prints: where it records, what the user left, what is left over at the end."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Protocol

import click

from rlhfdoctor.i18n.language import load_language
from rlhfdoctor.i18n.message import Message, plural, say
from rlhfdoctor.record.watch import Outcome
from rlhfdoctor.report.sanitize import clean, shell_path

_FULL_DISK_BYTES = 1 << 20
_LOW_DISK_BYTES = 256 << 20
_LINE_LENGTH = 1000
_MOST_SURVIVORS, _COMMAND_LENGTH = 10, 60


class Teller(Protocol):
    """Prints a line to standard error."""

    def __call__(self, message: Message, lead: str = "doctor: ") -> None:
        """`lead`: what stands before it."""


def teller(language: str) -> Teller:
    """Prints lines of `doctor watch` to standard error, without control characters of what they quote."""
    words = load_language(language)

    def tell(message: Message, lead: str = "doctor: ") -> None:
        with contextlib.suppress(OSError, ValueError):  # a full disk, a closed terminal: the run goes on all the same
            click.echo(f"{lead}{clean(words(message), _LINE_LENGTH)}", err=True)

    return tell


def say_start(folder: Path, free: int, tell: Teller, *, is_kept: bool) -> None:
    """Where the recording goes, and if there is little room."""
    tell(say("recording to {folder}", folder=short_path(folder)))
    if not is_kept:
        tell(
            say(
                "only {free:bytes} are free there, so the command's output is not kept in a file: it goes straight "
                "to standard output. --out DIR takes another disk",
                free=free,
            )
        )
    elif free < _LOW_DISK_BYTES:
        tell(
            say(
                "only {free:bytes} are free there, and the command's output goes there too; "
                "--out DIR takes another disk",
                free=free,
            )
        )


def say_left(outcome: Outcome, folder: Path, tell: Teller) -> int:
    """The user left: how to come back, and how to end what goes on."""
    tell(say("left the view; run and recorder go on."))
    tell(say("come back:  doctor watch --attach {folder}", folder=shell_path(short_path(folder))), "  ")
    if outcome.job_pid is not None and outcome.exit_code is None:
        tell(say("end the run:  kill -TERM -{pid}", pid=outcome.job_pid), "  ")
    if outcome.recorder_pid:
        tell(say("stop recording:  kill {pid}", pid=outcome.recorder_pid), "  ")
    return 0


def say_end(outcome: Outcome, folder: Path, bad: bool, tell: Teller) -> None:
    """A full disk, and processes that are left over."""
    try:
        free = shutil.disk_usage(folder).free
    except OSError:  # it was moved or removed meanwhile
        tell(say("{folder} is gone, and what was recorded with it", folder=short_path(folder)))
        free = _FULL_DISK_BYTES
    if bad and free < _FULL_DISK_BYTES:
        tell(
            say(
                "the disk of {folder} is full ({free:bytes} left): what the command wrote to it elsewhere "
                "may be what ended it",
                folder=short_path(folder),
                free=free,
            )
        )
    if outcome.survivors:
        tell(
            plural(
                "{n} process that the command started still runs and is not recorded any more:",
                "{n} processes that the command started still run and are not recorded any more:",
                len(outcome.survivors),
            )
        )
        for held in outcome.survivors[:_MOST_SURVIVORS]:
            tell(
                say(
                    "pid {pid}, {size:bytes}: {command}",
                    pid=held.pid or 0,
                    size=held.held_bytes,
                    command=held.command[:_COMMAND_LENGTH],
                ),
                "  ",
            )


def short_path(folder: Path) -> str:
    """A path relative to the working folder if that is shorter."""
    try:
        return str(folder.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(folder)
