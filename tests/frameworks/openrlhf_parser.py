"""Rebuild the argument parser of an OpenRLHF script from its source text.

The scripts build their parser under `if __name__ == "__main__"`, after importing ray and vLLM:

    parser = argparse.ArgumentParser()
    parser.add_argument("--ds.zero_stage", type=int, default=2, help="DeepSpeed ZeRO stage")
    for prefix in ("actor", "critic"):
        parser.add_argument(f"--{prefix}.adam.lr", type=float, default=...)
    args = parser.parse_args()

so nothing is imported. Of the block with `ArgumentParser(...)` only the statements that build the
parser are run, loops over them included (f-string flags need no expansion by hand).

Releases before 0.3.6 are tags of the repository and nowhere else; what their parser takes (no more
of it) is kept in `openrlhf_early.json`, from which the parser is rebuilt.
"""

import argparse
import ast
import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

_BUILDERS = frozenset({"ArgumentParser", "add_argument", "add_argument_group", "add_mutually_exclusive_group"})


class Rejected(Exception):
    """The release's parser does not take these arguments; the text is argparse's own."""


class _Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises where the original would print usage and exit with 2."""

    def error(self, message: str) -> NoReturn:
        raise Rejected(message)


def read_parser(path: Path) -> argparse.ArgumentParser:
    """Build the parser that the script at `path` would parse its command line with."""
    block = _parser_block(ast.parse(path.read_text(encoding="utf-8")))
    kept = [statement for statement in block if _builds_parser(statement)]
    names: dict[str, object] = {
        "argparse": SimpleNamespace(**{**vars(argparse), "ArgumentParser": _Parser}),
        "datetime": datetime.datetime,  # in the default of --wandb_run_name
    }
    exec(compile(ast.Module(kept, type_ignores=[]), str(path), "exec"), names)
    parsers = [value for value in names.values() if isinstance(value, _Parser)]
    if len(parsers) != 1:
        raise ValueError(f"{path} builds {len(parsers)} parsers")
    parsers[0].prog = path.name
    return parsers[0]


def parse(parser: argparse.ArgumentParser, argv: Sequence[str]) -> str | None:
    """Return argparse's error text for `argv`, or None when all of it is understood."""
    try:
        parser.parse_args(argv)
    except Rejected as rejected:
        return str(rejected)
    return None


def describe(parser: argparse.ArgumentParser) -> dict[str, dict[str, object]]:
    """Each flag with what decides whether a command line is taken: values behind it, their type, choices."""
    return {
        action.option_strings[0]: {
            "values": action.nargs if action.nargs is not None else 1,
            "type": getattr(action.type, "__name__", "str"),
            "choices": list(action.choices) if action.choices is not None else None,
            "required": action.required,
        }
        for action in parser._actions
        if action.option_strings and action.dest != "help"
    }


def rebuild(flags: Mapping[str, Mapping[str, object]], prog: str) -> argparse.ArgumentParser:
    """A parser that takes and refuses what the described one did."""
    types = {"int": int, "float": float, "str": str, "list": list}
    parser = _Parser(prog=prog)
    for flag, told in flags.items():
        if told["values"] == 0:
            parser.add_argument(flag, action="store_true", required=bool(told["required"]))
        else:
            count = None if told["values"] == 1 else told["values"]
            parser.add_argument(
                flag,
                nargs=count,
                type=types[str(told["type"])],
                choices=told["choices"],
                required=bool(told["required"]),
            )  # type: ignore[arg-type]
    return parser


def _parser_block(tree: ast.Module) -> list[ast.stmt]:
    """Find the list of statements in which `... = argparse.ArgumentParser(...)` stands."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and any(_called_name(line) == "ArgumentParser" for line in body):
            return body
    raise ValueError("the script builds no ArgumentParser")


def _builds_parser(statement: ast.stmt) -> bool:
    """Tell whether running this statement only adds to the parser."""
    if isinstance(statement, ast.For):
        return all(_builds_parser(inner) for inner in statement.body)
    return _called_name(statement) in _BUILDERS


def _called_name(statement: ast.AST) -> str | None:
    """Name what `f(...)`, `a.f(...)` or `x = a.f(...)` calls; None for any other statement."""
    value = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if not isinstance(value, ast.Call):
        return None
    called = value.func
    if isinstance(called, ast.Attribute):
        return called.attr
    return called.id if isinstance(called, ast.Name) else None
