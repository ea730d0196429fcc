"""TABLE.md: fact x expected x measured x command, from the steps and the lines that were measured."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.gpu.step import Expected, steps

RESULTS = Path(__file__).with_name("results.jsonl")
TABLE = Path(__file__).with_name("TABLE.md")
HEAD = """\
# What the doctor assumes of a GPU machine

Written by `make gpu` (`python -m tests.gpu --list`; see the head of `tests/gpu/__main__.py`). Numbers without a unit are ratios:
measured over what was asked for, or over what was predicted before anything was measured. `assumed in` is the place of the
code that rests on the fact. Measured is empty where nothing was measured; `unknown` says why.
"""


def read_lines(results: Path) -> list[dict[str, Any]]:
    """The lines so far; one that was cut off at the end is left out."""
    found = []
    for line in results.read_text().splitlines() if results.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def latest(lines: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Step -> its last line that has a verdict."""
    return {line["step"]: line for line in lines if "verdict" in line}


def table(lines: Iterable[Mapping[str, Any]]) -> str:
    """The page."""
    done = latest(lines)
    return "\n".join([HEAD, *_environment(done.values()), *_rows(done)]) + "\n"


def _environment(done: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    seen = {json.dumps(line["environment"], sort_keys=True) for line in done}
    for text in sorted(seen):
        yield "- " + ", ".join(f"{name} {value}" for name, value in json.loads(text).items() if value)
    yield "" if seen else "Nothing has been measured yet: no CUDA machine could be had.\n"


def _rows(done: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    yield "| fact | expected | measured | verdict | assumed in | command |"
    yield "|---|---|---|---|---|---|"
    for step in steps():
        line = done.get(step.name, {})
        cells = (
            step.fact,
            "; ".join(f"{name} {_range(wanted)}" for name, wanted in step.expected.items()),
            _measured(line),
            line.get("verdict", ""),
            f"{step.assumed.file}: {step.assumed.text}",
            f'`make gpu ARGS="--only {step.name}"`',
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _measured(line: Mapping[str, Any]) -> str:
    figures = [f"{name} {value}" for name, value in line.get("measured", {}).items() if "\n" not in str(value)]
    return "; ".join(figures) or str(line.get("why", ""))


def _range(wanted: Expected) -> str:
    return wanted if isinstance(wanted, str) else f"{wanted[0]:g} to {wanted[1]:g}"



if __name__ == "__main__":
    TABLE.write_text(table(read_lines(RESULTS)))
