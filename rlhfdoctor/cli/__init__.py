"""The `doctor` command: flags in, exit code out; everything heavy is imported inside its command.

Exit codes (contract.md): 0 nothing wrong found, 1 an incident, 2 wrong use or unreadable input; 130 after Ctrl-C.
"""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Any

import click

from rlhfdoctor import __version__
from rlhfdoctor.cli.analyze import analyze
from rlhfdoctor.cli.bundle import bundle
from rlhfdoctor.cli.compare import compare
from rlhfdoctor.cli.config import config
from rlhfdoctor.cli.console import echo, words
from rlhfdoctor.cli.estimate import estimate
from rlhfdoctor.cli.help import show_help
from rlhfdoctor.cli.mcp import mcp
from rlhfdoctor.cli.patch import patch
from rlhfdoctor.cli.report import report
from rlhfdoctor.cli.rules import rules
from rlhfdoctor.cli.watch import watch
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.report.sanitize import shown

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Group(click.Group):
    """Prints the errors that users may see without a traceback, and exits with 2."""

    def main(self, *words: Any, **more: Any) -> Any:
        _open_streams()
        return super().main(*words, **more)

    def make_context(self, *words: Any, **more: Any) -> click.Context:
        try:
            return super().make_context(*words, **more)
        except click.ClickException as error:
            raise _shown(error) from None
        except (click.Abort, KeyboardInterrupt):
            raise _stopped() from None

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except DoctorError as error:
            echo(f"doctor: {words()(error.says)}", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except click.ClickException as error:
            raise _shown(error) from None
        except (click.Abort, KeyboardInterrupt):
            raise _stopped() from None
        except click.exceptions.Exit:
            raise
        except MemoryError:
            says = say("not enough memory for the doctor: raise `ulimit -v` or the container's limit")
            echo(f"doctor: {words()(says)}", err=True)
            ctx.exit(2)
        except Exception as error:  # a user sees no traceback
            if os.environ.get("RLHFDOCTOR_DEBUG"):
                raise
            from rlhfdoctor.faults import described

            says = say(
                "internal error in doctor (not in your run): {fault}\n"
                "Please report it with the output of the same command under RLHFDOCTOR_DEBUG=1.",
                fault=described(error),
            )
            echo(f"doctor: {words()(says)}", err=True)
            ctx.exit(2)


def _open_streams() -> None:
    """Standard streams that a daemon or `2>&-` closed lead to nothing: no file opened later takes their number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # gets the lowest free number
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)


def _stopped() -> click.exceptions.Exit:
    """As a shell has it, and no exit code of a verdict: click would end with 1, which is an incident."""
    echo(f"\ndoctor: {words()(say('stopped by Ctrl-C'))}", err=True)
    return click.exceptions.Exit(130)


def _shown(error: click.ClickException) -> click.ClickException:
    """With what the command line holds made visible, and a word on options of the command that is to be watched."""
    vars(error)["message"] = shown(error.message)
    if isinstance(error, click.NoSuchOption) and error.ctx is not None and error.ctx.info_name == "watch":
        vars(error)["message"] += " If it belongs to the command, put -- before that: doctor watch -- COMMAND"
    return error


_EPILOG = "Documentation: `doctor help` lists the pages, `doctor help first-steps` is where to begin."


@click.group(cls=_Group, context_settings=_SETTINGS, epilog=_EPILOG)
@click.version_option(__version__, prog_name="doctor")
def main() -> None:
    """The doctor for RLHF training runs: what killed the run, why, and what to change.

    \b
    Examples:
      doctor analyze /tmp/ray/session_latest/logs launch.sh
      doctor estimate launch.sh --host-memory 1T --gpu a100-80g
      doctor watch -- python train.py
      dmesg -T | doctor analyze -
      doctor patch ray_logs launch.sh --write
      doctor compare doctor-runs/before doctor-runs/after
      doctor report doctor-runs/20260131T120000Z-train --out report.html
      doctor bundle ray_logs launch.sh --out incident.tar.gz
      doctor rules explain host-pinned-offload
    """


def _refuse_empty(command: click.Command) -> None:
    """Of every path: a variable that is not set is an empty word, and that would be the current folder."""
    if isinstance(command, click.Group):
        for part in command.commands.values():
            _refuse_empty(part)
    for param in command.params:
        is_file = isinstance(param.type, click.Path) or param.metavar in ("FILE", "DIR")
        if is_file or (isinstance(param, click.Argument) and param.type is click.STRING):
            param.callback = functools.partial(_filled, param.callback)


def _filled(callback: Callable[..., Any] | None, ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    given = [str(word) for word in (value if isinstance(value, tuple) else (value,)) if word is not None]
    if "" in given:
        raise click.BadParameter("an empty word; is a variable of the shell not set?", ctx, param)
    if not all(map(os.path.isabs, given)):
        try:
            os.path.realpath(".")
        except OSError:
            raise click.BadParameter("the current folder was removed; change into another one", ctx, param) from None
    return value if callback is None else callback(ctx, param, value)


for command in (analyze, bundle, compare, config, estimate, show_help, mcp, patch, report, rules, watch):
    main.add_command(command)
_refuse_empty(main)
