"""Settings as the budget reads them: from the files, else the release's default, else a reported assumption."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from rlhfdoctor.budget.shapes import Shape, find_shape, read_shape
from rlhfdoctor.budget.types import Limit, Place
from rlhfdoctor.errors import DoctorError, UsageError
from rlhfdoctor.i18n.message import NOTHING, Message, quoted, say
from rlhfdoctor.plugins import folders
from rlhfdoctor.settings.spell import FRAMEWORKS, parse_version, spell
from rlhfdoctor.types import Framework, Origin, Setting, Value
from rlhfdoctor.units import is_whole, parse_bytes
from rlhfdoctor.vocabulary.limits import BoundName
from rlhfdoctor.vocabulary.names import Trait

_ALWAYS_SHOWN: tuple[BoundName, ...] = ("node", "GPU")
"""Limits that are listed even if their size is unknown."""
_MODEL = say("the model")
_LONGEST_NAME = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Properties of the machines given by the user, if the files do not have them. None if unknown."""

    nodes: int | None = None
    gpus_per_node: int | None = None
    """0: no GPUs, everything is computed in host memory."""
    host_bytes: int | None = None
    host_basis: str = "--host-memory"
    container_bytes: int | None = None
    shm_bytes: int | None = None
    gpu_bytes: int | None = None
    gpu_basis: str = "--gpu"
    model: str | None = None
    """A public name, a folder or config.json, or a size such as 7B."""


@dataclass(slots=True)
class Inputs:
    """Settings in force by canonical name, framework, versions of packages, what the user gave for the machines."""

    settings: Mapping[str, Setting]
    framework: Framework | None
    versions: Mapping[str, tuple[str, str]]
    machine: Machine
    assumed: list[Message] = field(default_factory=list)
    commands: tuple[str, ...] = ()
    """Commands and modules of the framework that the files name, such as `trl sft`."""

    def value(self, *names: str) -> Value:
        """The first of these that is set, else the release's default, else None."""
        for name in names:
            setting = self.settings.get(name)
            if setting is None:
                continue
            if isinstance(setting.value, str) and "$" in setting.value:
                self.assume(
                    say(
                        "{spelled} is {value}, an unresolved shell variable; using the release default",
                        spelled=setting.spelled,
                        value=setting.value,
                    )
                )
                continue
            return setting.value
        name = self.framework.name if self.framework is not None else ""
        for wanted in names:
            if name in FRAMEWORKS:
                found = spell(wanted, name, self.release)
                if found is not None:
                    return found.default  # type: ignore[return-value]
        return None

    def factor(self, name: str) -> float:
        """How many of the setting's own unit one of the value in the user's files is, or would be."""
        own = self.settings.get(name)
        framework = self.framework.name if self.framework is not None else ""
        found = spell(name, framework, self.release) if own is None and framework in FRAMEWORKS else None
        return own.factor if own is not None else found.factor if found is not None else 1

    @property
    def release(self) -> str | None:
        """Version of the framework; unknown, the newest that takes all of the user's spellings."""
        return None if self.framework is None else self.framework.version or self.framework.until

    def number(self, *names: str, default: float) -> float:
        """As `value`, for numbers; anything else is the default."""
        value = self.value(*names)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else default

    def stage(self, *names: str, default: int) -> int:
        """ZeRO's stage by the first of these settings, 0 to 3."""
        stage = self.number(*names, default=default)
        if stage in (0, 1, 2, 3):
            return int(stage)
        self.assume(say("ZeRO has no stage {stage:g}; using {assumed}", stage=stage, assumed=default))
        return default

    @property
    def version_words(self) -> Message:
        """The release as far as it is known, for people."""
        framework = self.framework
        if framework is None or framework.version:
            return quoted(folders.shown(framework.name, framework.version or "")) if framework is not None else NOTHING
        since, until = (folders.shown(framework.name, release or "") for release in (framework.since, framework.until))
        if not since and not until:
            return say("of unknown version")
        return say(
            "{since} to {until}, by the spelling of its settings",
            since=quoted(since) if since else say("any"),
            until=quoted(until) if until else say("newest"),
        )

    def count(self, *names: str, default: int) -> int:
        """As `number`, whole and at least 1."""
        return max(int(self.number(*names, default=default)), 1)

    def flag(self, *names: str, default: bool = False) -> bool:
        """Whether something is switched on; DeepSpeed names a device in place of true."""
        value = self.value(*names)
        return default if value is None else value not in (False, "none", "None", 0)

    def version(self, package: str) -> str | None:
        """Of a package other than the framework."""
        found = self.versions.get(package)
        return found[0] if found else None

    def before(self, package: str, version: str) -> bool:
        """Whether a package is older; no for an unknown version."""
        here, there = parse_version(self.version(package)), parse_version(version)
        return here is not None and there is not None and here < there

    def framework_before(self, version: str) -> bool:
        """Whether the framework is older; no for an unknown version."""
        here, there = parse_version(self.release), parse_version(version)
        return here is not None and there is not None and here < there

    def has(self, trait: Trait) -> bool:
        """Whether the framework has a trait; no for an unknown framework."""
        return self.framework is not None and folders.has(self.framework.name, trait, self.value)

    def assume(self, sentence: Message) -> None:
        """Records an assumption about something unknown."""
        if sentence not in self.assumed:
            self.assumed.append(sentence)

    def shape(self, *names: str, of: Message = _MODEL) -> Shape | None:
        """The shape of the model that the first of these settings names; None where none of them is set.

        Raises:
            UsageError: a model is named, and its size is unknown from both its name and its files.
        """
        for name in names:
            setting = self.settings.get(name)
            if setting is None or not isinstance(setting.value, str):
                continue
            found = self._shape(setting)
            if found is not None:
                return found
            if self.machine.model is None:
                raise UsageError(
                    say(
                        "{spelled} {value}: size of {model} unknown, neither the name nor a config.json there gives "
                        "it; add --model, such as --model Qwen2.5-7B, --model 13B or --model FOLDER",
                        spelled=setting.spelled,
                        value=setting.value,
                        model=of,
                    )
                )
            break
        return None

    def shape_or(self, other: Shape, *names: str, of: Message) -> Shape:
        """Like `shape`, for roles other than the actor: if the size is unknown, that of `other` is assumed."""
        try:
            found = self.shape(*names, of=of)
        except UsageError:
            found = None
            self.assume(say("size of {model} unknown; assuming {name}", model=of, name=other.name))
        return found or other

    def given_shape(self) -> Shape | None:
        """The shape that --model names.

        Raises:
            UsageError: no model is named.
        """
        name = self.machine.model
        if name is None:
            return None
        if len(name) <= _LONGEST_NAME and Path(name).exists():
            return read_shape(Path(name))
        found = find_shape(name)
        if found is None:
            raise UsageError(
                say("--model {name}: no public model by this name, no size in it (7B), and no such folder", name=name)
            )
        self._note_size(found, name)
        return found

    def _shape(self, setting: Setting) -> Shape | None:
        text = str(setting.value)
        near = Path(setting.origin.file).parent / text
        for path in (Path(text), near):
            try:
                if (path / "config.json").is_file():
                    return read_shape(path)
            except (DoctorError, OSError, ValueError):
                continue
        found = find_shape(text)
        if found is not None:
            self._note_size(found, text)
        return found

    def _note_size(self, found: Shape, text: str) -> None:
        if re.search(r"(?:^|[-_/])(?:vl|vision|omni)(?:[-_.]|$)", text, re.I):
            self.assume(say("{model}: its vision tower is not counted", model=text))
        if found.given_parameters is not None:
            self.assume(
                say(
                    "{model}: assuming a typical shape of {parameters:.3g}B parameters; --model FOLDER gives the exact "
                    "one",
                    model=text,
                    parameters=found.parameters / 1e9,
                )
            )

    def limits(self, gpu: bool) -> tuple[Limit, ...]:
        """Limits of container, node, /dev/shm and GPU, as far as known from files or flags."""
        machine = self.machine
        found = [
            self._limit("container", "host", machine.container_bytes, "--container-memory", "container.memory"),
            Limit(
                name="node",
                place="host",
                bytes=machine.host_bytes,
                basis=quoted(machine.host_basis)
                if machine.host_bytes
                else say("unknown: --container-memory, --host-memory"),
            ),
            self._limit("/dev/shm", "shm", machine.shm_bytes, "--shm", "container.shm_size"),
        ]
        if gpu:
            found.append(
                Limit(
                    name="GPU",
                    place="gpu",
                    bytes=machine.gpu_bytes,
                    basis=quoted(machine.gpu_basis) if machine.gpu_bytes else say("unknown: --gpu"),
                )
            )
        return tuple(limit for limit in found if limit.bytes is not None or limit.name in _ALWAYS_SHOWN)

    def _limit(self, name: BoundName, place: Place, given: int | None, flag: str, setting: str) -> Limit:
        own = self.settings.get(setting)
        if given is not None or own is None:
            return Limit(name=name, place=place, bytes=given, basis=quoted(flag))
        text = str(own.value)
        if text == "0":  # all of the node's
            return Limit(name=name, place=place, bytes=None, basis=quoted(f"{own.spelled} 0"))
        if own.form == "sbatch" and is_whole(text):
            text += "m"
        return Limit(
            name=name,
            place=place,
            bytes=parse_bytes(text),
            basis=say("{spelled} {value} ({origin})", spelled=own.spelled, value=own.value, origin=str(own.origin)),
        )


def change(inputs: Inputs, name: str, value: Value) -> Inputs:
    """The same with one setting changed, as an edit of the user's files would change it."""
    own = inputs.settings.get(name)
    framework = inputs.framework.name if inputs.framework is not None else ""
    spelling = spell(name, framework, inputs.release) if framework in FRAMEWORKS else None
    if own is None:
        spelled = spelling.spelled if spelling is not None else name
        own = Setting(
            name=name,
            spelled=spelled,
            value=None,
            framework=framework,
            origin=Origin(file="(added)"),
            form=spelling.form if spelling else "flag",
            factor=inputs.factor(name),
        )
    return replace(inputs, settings={**inputs.settings, name: replace(own, value=value)}, assumed=[])
