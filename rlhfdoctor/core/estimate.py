"""Before a run: paths of its configuration -> the memory that it will take on the fullest node."""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rlhfdoctor.budget.estimate import fullest
from rlhfdoctor.budget.inputs import Machine
from rlhfdoctor.budget.types import Estimate
from rlhfdoctor.core.session import Session
from rlhfdoctor.evidence.setup import make_inputs
from rlhfdoctor.files import write
from rlhfdoctor.paths import Paths, listed
from rlhfdoctor.settings.read import CONFIG_LIMIT_BYTES
from rlhfdoctor.types import Patch, Setting

__all__ = ["Machine", "estimate", "suggest"]


def estimate(
    paths: Paths, *, configs: Paths = (), framework: str | None = None, machine: Machine | None = None
) -> Estimate:
    """The memory budget of a configuration: by role and phase, against the limits.

    Example:
        >>> found = estimate("samples/openrlhf-save-kill/run/launch.sh", machine=Machine(gpu_bytes=80 << 30))
        >>> found.phases
        ('load', 'rollout', 'score', 'update', 'final_save')
        >>> found.of("gpu", "update") <= 80 << 30
        True

    Args:
        paths: launch scripts, YAML, DeepSpeed JSON, logs that show the settings; `-` for standard input; one of them,
            or several. None: the release's defaults; framework and model must be given then.
        configs: configuration files in addition to the paths.
        framework: `NAME` or `NAME==VERSION`, if it cannot be detected.
        machine: properties of the machines that are unknown from the files.

    Raises:
        SourceError: nothing could be read.
        UsageError: the framework or the model's size is unknown from both files and flags.
    """
    with opened(paths, configs=configs, framework=framework) as session:
        return estimate_session(session, machine)


def suggest(
    paths: Paths, *, configs: Paths = (), framework: str | None = None, machine: Machine | None = None
) -> tuple[Estimate, list[Patch]]:
    """As `estimate`, after the smallest change of the user's settings that fits, and that change.

    Raises:
        SourceError, UsageError: as `estimate`.
    """
    with opened(paths, configs=configs, framework=framework) as session:
        return suggest_session(session, machine)


def estimate_session(session: Session, machine: Machine | None = None) -> Estimate:
    """As `estimate`, of a session that is open."""
    return replace(fullest(make_inputs(session.case, machine or Machine(), planned=True)), gaps=tuple(session.gaps))


def suggest_session(session: Session, machine: Machine | None = None) -> tuple[Estimate, list[Patch]]:
    """As `suggest`, of a session that is open."""
    from rlhfdoctor.patch.plan import Configuration
    from rlhfdoctor.patch.suggest import suggest as find_change

    inputs = make_inputs(session.case, machine or Machine(), planned=True)
    configuration = Configuration(session.texts, list(inputs.settings.values()), inputs.framework, inputs.versions)
    found, patches = find_change(inputs, configuration)
    return replace(found, gaps=tuple(session.gaps)), patches


@contextlib.contextmanager
def opened(paths: Paths, *, configs: Paths = (), framework: str | None = None) -> Iterator[Session]:
    """A session with the DeepSpeed files, too, that the given ones name."""
    with tempfile.TemporaryDirectory(prefix="doctor-") as folder:
        files = [_from_stdin(Path(folder)) if path == "-" else path for path in (*listed(paths), *listed(configs))]
        files = files or [_without_settings(Path(folder))]
        with Session(files, framework=framework, planned=True) as session:
            named = [str(path) for path in _named(session.case.settings) if str(path) not in session.texts]
            if named:
                session.add(named)
            yield session


def _without_settings(folder: Path) -> str:
    """A launch script that sets nothing."""
    target = folder / "defaults.sh"
    write.replace(target, b"# the release's defaults\n")
    return str(target)


def _from_stdin(folder: Path) -> str:
    """Standard input as a file, named by its format: JSON, YAML or shell."""
    data = sys.stdin.buffer.read(CONFIG_LIMIT_BYTES)
    text = data.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    yaml = re.match(r"(?:#[^\n]*\n|\s)*[\w.-]+:(?:\s|$)", text) is not None
    target = folder / ("stdin.json" if text.startswith("{") else "stdin.yaml" if yaml else "stdin.sh")
    write.replace(target, data)
    return str(target)


def _named(settings: Sequence[Setting]) -> list[Path]:
    """DeepSpeed's JSON files that other files name, if they are in the same folder or below the working folder."""
    found = []
    for setting in settings:
        if setting.name.rpartition(".")[2] not in (
            "deepspeed",
            "deepspeed_config_file",
            "deepspeed_config",
        ) or not isinstance(setting.value, str):
            continue
        for path in (Path(setting.origin.file).parent / setting.value, Path(setting.value)):
            if path.suffix == ".json" and path.is_file():
                found.append(path)
                break
    return list(dict.fromkeys(found))
