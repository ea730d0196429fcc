"""What the doctor assumes of a GPU machine, measured on one: `make gpu`, or `python -m tests.gpu`.

Each step measures one fact in a process of its own and adds a JSON line to tests/gpu/results.jsonl at once; a step that
has its line is left out next time, so a run that was cut off goes on where it was. TABLE.md is written from the lines.

    make gpu                              some ten minutes at most; again, until nothing is left
    make gpu ARGS="--only rounding"       one step, anew
    python -m tests.gpu --list            the steps, and what they have shown
    python -m tests.gpu --try             on a machine without a GPU: stand-ins for CUDA's calls; nothing is stored

Needed: torch with CUDA and transformers for most steps, root and a memory cgroup for some, DeepSpeed and OmegaConf for
those of the trainer. What is missing makes a step `unknown`, with the reason. No network, no vLLM, no Ray. Of the doctor's
own requirements a machine may lack msgspec, polib, zstandard: `pip download` them elsewhere and install the wheels.

Where a machine gives back only what is below $OUT, the lines, the table and the messages are copied there after each step.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from tests.gpu.step import ROOT, Device, Step, Unknown, steps, verdict
from tests.gpu.table import RESULTS, TABLE, latest, read_lines, table

MARK = "@result "
"""Begins the lines of a step's process that are for us; everything else that it prints goes to standard error."""
_PR_SET_PDEATHSIG = 1
_PATIENCE = 4
"""A machine on which steps are only tried may be slow; nothing is measured there."""


@click.command(help=__doc__)
@click.option("--only", multiple=True, help="This step, or those whose name begins so; measured anew.")
@click.option("--list", "listed", is_flag=True, help="The steps, with the verdicts so far.")
@click.option("--try", "tried", is_flag=True, help="On a CPU: everything but CUDA's own calls; nothing is stored.")
@click.option("--seconds", default=540.0, help="No step is begun that may take longer than what is left of this.")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="Where the JSON lines are.")
@click.option("--worker", hidden=True, help="Measure this step in this process.")
def main(only: tuple[str, ...], listed: bool, tried: bool, seconds: float, results: Path, worker: str | None) -> None:
    device: Device = "cpu" if tried else "cuda"
    if worker is not None:
        work(next(step for step in steps() if step.name == worker), device)
        return
    chosen = choose(only)
    if not chosen:
        raise click.UsageError(f"no step is named so; the steps are: {', '.join(step.name for step in steps())}")
    if listed:
        show(chosen, results)
    elif tried:
        failed = [step.name for step in chosen if not report(step, measure(step, device))]
        sys.exit(f"{len(failed)} steps failed: {', '.join(failed)}" if failed else 0)
    else:
        run(chosen, results, seconds, anew=bool(only))


def choose(only: tuple[str, ...]) -> list[Step]:
    """The steps of these names; a word that is no name stands for all that begin so. All of them without words."""
    names = {step.name for step in steps()}
    begins = tuple(word for word in only if word not in names)
    return [step for step in steps() if not only or step.name in only or (begins and step.name.startswith(begins))]


def run(chosen: list[Step], results: Path, seconds: float, anew: bool) -> None:
    """The steps that are still to be measured, as long as there is time."""
    if not has_cuda():
        sys.exit("no CUDA device here; `python -m tests.gpu --try` tries the steps without one")
    done = {} if anew else latest(read_lines(results))
    left = [step for step in chosen if done.get(step.name, {}).get("measured") is None]
    deadline = time.monotonic() + seconds
    for number, step in enumerate(left):
        if time.monotonic() + step.limit_s > deadline:
            print(f"{len(left) - number} steps are left for the next run, from {step.name} on", file=sys.stderr)
            break
        report(step, measure(step, "cuda", results))
    if results == RESULTS:
        TABLE.write_text(table(read_lines(results)))
    hand_over(results)


def measure(step: Step, device: Device, results: Path | None = None) -> dict[str, Any]:
    """The step's line; its prediction is stored before the rest of it is known."""
    command = [sys.executable, "-m", "tests.gpu", "--worker", step.name, *(["--try"] if device == "cpu" else [])]
    found: dict[str, Any] = {
        "step": step.name,
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "environment": environment(device),
    }
    with tempfile.TemporaryDirectory(prefix="rlhfdoctor-gpu-") as folder:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": _path(), "RLHFDOCTOR_GPU_FOLDER": folder, **step.environment},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        timer = Deadline(process, step.limit_s * (1 if device == "cuda" else _PATIENCE))
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(MARK):
                found |= json.loads(line.removeprefix(MARK))
                if results is not None:
                    append(results, found)
            else:
                sys.stderr.write(line)
        code = process.wait()
        timer.stop()
    if "verdict" not in found:
        why = f"it took longer than {timer.seconds:g} s" if timer.passed else f"its process ended with status {code}"
        found |= {"verdict": "unknown", "why": why, "failed": True}
        if results is not None:
            append(results, found)
    return found


class Deadline:
    """Ends a process and its children after some seconds."""

    def __init__(self, process: subprocess.Popen[str], seconds: float) -> None:
        import threading

        self.passed, self.seconds, self._process = False, seconds, process
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _end(self) -> None:
        self.passed = True
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def stop(self) -> None:
        self._timer.cancel()


def work(step: Step, device: Device) -> None:
    """Predicts, tells it, measures, tells that; in the step's own process, which ends with the one that started it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        if step.predict is not None:
            tell(predicted=dict(step.predict(device)))
        measured = step.run(device)
    except Unknown as error:
        tell(verdict="unknown", why=str(error))
        return
    tell(expected=step.expected, measured=dict(measured), verdict=verdict(step.expected, measured))


def tell(**fields: object) -> None:
    print(MARK + json.dumps(fields), flush=True)


def append(results: Path, fields: Mapping[str, Any]) -> None:
    """One more line; the last one of a step counts."""
    with results.open("a") as file:
        file.write(json.dumps(fields) + "\n")
        file.flush()
        os.fsync(file.fileno())
    hand_over(results)


def hand_over(results: Path) -> None:
    """Lines and table into $OUT, the folder that comes back from a machine that is lent."""
    out = os.environ.get("OUT")
    if out and results.is_file():
        Path(out).mkdir(parents=True, exist_ok=True)
        shutil.copy(results, Path(out, "results.jsonl"))
        Path(out, "TABLE.md").write_text(table(read_lines(results)))


def report(step: Step, found: Mapping[str, Any]) -> bool:
    """Prints a step's line; False if its process failed."""
    figures = "; ".join(f"{name} {value}" for name, value in found.get("measured", {}).items())
    print(f"{found['verdict']:8}{step.name:28}{figures or found.get('why', '')}", flush=True)
    return not found.get("failed")


def show(chosen: list[Step], results: Path) -> None:
    done = latest(read_lines(results))
    for step in chosen:
        print(f"{done.get(step.name, {}).get('verdict', '-'):8}{step.name:28}{step.fact}")


def environment(device: Device) -> dict[str, str | None]:
    """What the figures hold for; asked without touching the card."""
    release = importlib.metadata.version("torch") if importlib.util.find_spec("torch") else None
    card = driver = None
    if device == "cuda":
        card, driver = _card()
    return {
        "card": card,
        "driver": driver,
        "torch": release,
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _card() -> tuple[str | None, str | None]:
    try:
        import pynvml

        pynvml.nvmlInit()
        name, driver = pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(0)), pynvml.nvmlSystemGetDriverVersion()
    except Exception:  # no library, no driver: the steps say so
        return None, None
    return *(text.decode() if isinstance(text, bytes) else str(text) for text in (name, driver)),  # type: ignore[return-value]


def has_cuda() -> bool:
    """Whether CUDA runs here; asked in another process, so that this one holds nothing of the card."""
    if importlib.util.find_spec("torch") is None:
        return False
    code = "import torch; raise SystemExit(not torch.cuda.is_available())"
    return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 0


def _path() -> str:
    return os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])


if __name__ == "__main__":
    main()
