"""Which framework ran, in which version, on what basis: banners, package lists, paths, spellings."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.plugins import folders
from rlhfdoctor.plugins.spec import FrameworkSpec
from rlhfdoctor.settings.spell import FRAMEWORKS, claimants, load_table, normal, parse_version, rows_of
from rlhfdoctor.types import Event, Framework, Setting
from rlhfdoctor.vocabulary import EVENT, FIELD

_COMMAND, _PATH, _SPELLING, _ACTOR = 8, 3, 2, 1
"""What a sign weighs: a command line or a dump of its configuration, a source file in a traceback, a setting, a Ray
class."""
_LEAST = 4
_LEAST_DUMPED = 5
_DUMPED_RATIO = 0.4
"""A dump is a framework's own with so many of its settings: plain Megatron prints a third of slime's, a plain
TrainingArguments a third of TRL's."""
_COMMON_OPTIONS = """
bf16 save_steps dataloader_num_workers gradient_checkpointing resume_from_checkpoint ddp_timeout load
per_device_train_batch_size use_liger_kernel max_len max_new_tokens lora_rank flash_attn attn_implementation
gradient_checkpointing_use_reentrant load_checkpoint param_dtype train_batch_size num_machines
zero_stage overlap_comm offload enforce_eager enable_prefix_caching
accumulate_allreduce_grads_in_fp32 async_save context_parallel_size distributed_timeout_minutes micro_batch_size
expert_model_parallel_size global_batch_size no_save_optim num_gpus_per_node optimizer_cpu_offload save_interval
optimizer_offload_fraction overlap_cpu_optimizer_d2h_h2d pipeline_model_parallel_size recompute_granularity
recompute_num_layers sequence_parallel tensor_model_parallel_size use_precision_aware_optimizer
"""
"""Of transformers' TrainingArguments, DeepSpeed's examples, vLLM, Megatron-LM."""
_COMMON = frozenset(normal(f"--{word}") for word in _COMMON_OPTIONS.split())
"""Options that programs of many kinds take: a sign only beside another one."""
_INSTALLED = re.compile(r".*(?:site|dist)-packages(?=/)", re.S)
_PINNED = re.compile(r"(?:^|\s)([A-Za-z][\w-]{1,40})==(\d+\.\d+[\w.]{0,40})")


def find_versions(events: Iterable[Event]) -> dict[str, tuple[str, str]]:
    """Package -> (version, basis), from banners and package lists; the first mention wins."""
    versions: dict[str, tuple[str, str]] = {}
    for event in events:
        version = event.fields.get(FIELD.version)
        if not version:
            continue
        package = {
            EVENT.deepspeed.version: "deepspeed",
            EVENT.vllm.version: "vllm",
            EVENT.nccl.version: "nccl",
        }.get(event.kind)
        if event.kind == EVENT.version.package:
            package = _package(str(event.fields.get(FIELD.name, "")))
            for name, behind in _PINNED.findall(event.text):  # several on a line
                versions.setdefault(_package(name), (behind, str(event.origin)))
        if package:
            versions.setdefault(package, (str(version), str(event.origin)))
    return versions


def _package(name: str) -> str:
    """A package's name as all files spell it."""
    name = name.lower().replace("_", "-")
    return "nccl" if name.startswith("nvidia-nccl") else name


def find_framework(
    events: Sequence[Event],
    settings: Sequence[Setting],
    versions: dict[str, tuple[str, str]],
    given: str | None = None,
    *,
    recorded: bool = False,
) -> Framework | None:
    """The training framework of a run.

    What is installed names it only if nothing else does, and only if a person listed it: an environment has packages
    that the run never imports.

    Args:
        given: the user's choice, `NAME` or `NAME==VERSION`; it takes precedence.
        recorded: the versions are those of the interpreter's whole environment.
    """
    if given:
        return _given(given)
    votes: Counter[str] = Counter()
    exclusive: Counter[str] = Counter()
    common: Counter[str] = Counter()
    basis: dict[str, str] = {}
    for names, weight, where in _signs(events, settings):
        for name in names:
            votes[name] += weight
            common[name] += 0 if weight else _SPELLING
            exclusive[name] += bool(weight) and len(names) == 1
            basis.setdefault(name, where)
    for spec in folders.load():
        if spec.extends and exclusive[spec.framework]:
            votes[spec.framework] += votes[spec.extends]  # a fork has the modules and settings of what it was made of
    votes = Counter({name: count + common[name] for name, count in votes.items() if count})
    if not votes or max(votes.values()) < _LEAST:
        return _listed(events, versions, votes, recorded)
    name = max(FRAMEWORKS, key=lambda key: (votes[key], exclusive[key]))  # in a draw the first of them
    found = _of_packages(name, versions)
    since, until = _range(name, settings)
    return replace(found, since=since, until=until, basis=found.basis or quoted(basis[name]))


def _of_packages(name: str, versions: Mapping[str, tuple[str, str]]) -> Framework:
    """A framework with the version of its newest package that is installed, and where that was read."""
    own = next(((p, *versions[p.name]) for p in reversed(folders.packages(name)) if p.name in versions), None)
    if own is None:
        return Framework(name=name)
    package, version, where = own
    return Framework(
        name=name,
        version=package.release(version),
        package=package.name if package.name != name else "",
        basis=quoted(where),
    )


def _listed(
    events: Sequence[Event], versions: Mapping[str, tuple[str, str]], votes: Counter[str], recorded: bool
) -> Framework | None:
    """The one framework that a list of packages or the environment's name shows, or the one that has another sign."""
    there = {s.framework: _of_packages(s.framework, versions) for s in folders.load() if _is_listed(s, versions)}
    for event in events:
        name = None if event.kind != EVENT.python.frame else _of_environment(str(event.fields.get(FIELD.path_text)))
        if name is not None:
            there.setdefault(name, Framework(name=name, basis=quoted(str(event.origin))))
    signed = [name for name in there if votes[name]]
    names = signed or ([] if recorded else list(there))
    if len(names) != 1:
        return None
    found = there[names[0]]
    return replace(found, basis=say("{where}: only what is installed shows it", where=str(found.basis)))


def _is_listed(spec: FrameworkSpec, versions: Mapping[str, tuple[str, str]]) -> bool:
    return any(package.name in versions for package in spec.packages)


def _given(text: str) -> Framework:
    """The user's choice: the framework or one of its packages; of several, the framework's name means the newest."""
    word, _, version = text.partition("==")
    name = name_of(word)
    package = next((p for p in folders.packages(name) if p.name == word.lower()), None)
    release = package.release(version) if package is not None else version
    return Framework(
        name=name,
        version=release or None,
        package=package.name if package is not None and package.name != name else "",
        basis=quoted("--framework"),
    )


def check_given(given: str | None) -> None:
    """
    Raises:
        UsageError: the user's choice names no framework that is known.
    """
    if given is None or name_of(given) in FRAMEWORKS:
        return
    form = say("--framework '{name}': write NAME or NAME==VERSION, such as openrlhf==0.5.3", name=given)
    known = say("the frameworks known are {known:, }", known=tuple(sorted(FRAMEWORKS)))
    raise UsageError(joined(form, known, by="; ") if given.partition("==")[0].strip() else form)


def name_of(given: str) -> str:
    """The framework that `NAME`, `PACKAGE` or `NAME==VERSION` names."""
    word = given.partition("==")[0].lower()
    owner = next((s.framework for s in folders.load() if any(p.name == word for p in s.packages)), word)
    return word if word in FRAMEWORKS else owner


def _signs(events: Sequence[Event], settings: Sequence[Setting]) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """(frameworks that have it, weight, where it was read) of each sign of a framework."""
    actors = {actor: spec.framework for spec in folders.load() for actor in spec.actors}
    for event in events:
        if event.origin.actor in actors:
            yield (actors[event.origin.actor],), _ACTOR, str(event.origin)
        if event.kind == EVENT.framework.module and (name := _of_command(str(event.fields[FIELD.name]))):
            yield (name,), _COMMAND, str(event.origin)
        path = event.fields.get(FIELD.path_text)
        if event.kind == EVENT.python.frame and isinstance(path, str) and (name := _of_path(path)):
            yield (name,), _PATH, str(event.origin)
    for setting in settings:
        if setting.framework in FRAMEWORKS and setting.form != "dump":
            weight = 0 if normal(setting.spelled) in _COMMON else _SPELLING
            yield claimants(setting.spelled) or (setting.framework,), weight, str(setting.origin)
    yield from _dumped(settings)


def _dumped(settings: Sequence[Setting]) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """The framework of which a dump has many settings under paths of its own, or a good part of all settings."""
    names: dict[str, set[str]] = {}
    paths: dict[str, set[str]] = {}
    first: dict[str, str] = {}
    for setting in settings:
        if setting.form != "dump":
            continue
        for framework in claimants(setting.spelled):
            names.setdefault(framework, set()).add(setting.name)
            first.setdefault(framework, str(setting.origin))
            if "." in setting.spelled:
                paths.setdefault(framework, set()).add(setting.spelled)
    for framework, found in names.items():
        known = {row.name for row in load_table(framework) if row.form not in ("code", "env")}
        whole = len(found) >= max(_LEAST_DUMPED, _DUMPED_RATIO * len(known))
        if whole or len(paths.get(framework, ())) >= _LEAST_DUMPED:
            yield (framework,), _COMMAND, first[framework]


def _forks_first() -> list[FrameworkSpec]:
    return sorted(folders.load(), key=lambda spec: not spec.extends)


def _of_command(text: str) -> str | None:
    return next((s.framework for s in _forks_first() if any(re.search(c, text) for c in s.commands)), None)


@functools.lru_cache(maxsize=1024)
def _of_path(path: str) -> str | None:
    """By the file itself; an environment that bears the framework's name holds the packages of others, too."""
    own = _INSTALLED.sub("", path)
    return next((s.framework for s in _forks_first() if any(part in own for part in s.paths)), None)


def _of_environment(path: str) -> str | None:
    """The framework after which the environment of a package's file is named."""
    folder = _INSTALLED.match(path)
    return next((s.framework for s in _forks_first() if folder and any(p in folder[0] for p in s.paths)), None)


def _range(name: str, settings: Sequence[Setting]) -> tuple[str | None, str | None]:
    """Oldest and newest release that accept every spelling in the user's files and in commands that logs show."""
    since: str | None = None
    until: str | None = None
    if name not in FRAMEWORKS:
        return None, None
    written = dict.fromkeys(s.spelled for s in settings if s.framework == name and s.form != "dump")
    for spelled in written:  # a command may repeat one as often as it likes
        rows = rows_of(spelled, name)
        if not rows:
            continue
        firsts = [(parse_version(s.since), s.since) for s in rows if parse_version(s.since)]
        lasts = [(parse_version(s.until), s.until) for s in rows]
        if firsts:
            first = min(firsts, key=lambda pair: pair[0] or 0)[1]
            known = parse_version(since)
            if known is None or (parse_version(first) or known) > known:
                since = first
        if all(value is not None for value, _ in lasts):
            last = max(lasts, key=lambda pair: pair[0] or 0)[1]
            known = parse_version(until)
            if known is None or (parse_version(last) or known) < known:
                until = last
    return since, until
