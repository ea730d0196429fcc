"""Which framework ran, in which version, and on what basis: banners, package lists, paths, spellings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from rlhfdoctor.settings.spell import FRAMEWORKS, load_table, normal, parse_version
from rlhfdoctor.types import Event, Framework, Setting
from rlhfdoctor.vocabulary import EVENT, FIELD

#: actor classes that only one framework uses (openrlhf/trainer/ray/*.py; verl/single_controller/ray/base.py)
_ACTORS = {
    "ActorModelRayActor": "openrlhf", "CriticModelRayActor": "openrlhf", "PolicyModelActor": "openrlhf",
    "ReferenceModelRayActor": "openrlhf", "RewardModelRayActor": "openrlhf", "LLMRayActor": "openrlhf",
    "PolicyModelRayActor": "openrlhf", "ReferenceModelActor": "openrlhf", "CriticModelActor": "openrlhf",
    "WorkerDict": "verl", "main_task": "verl", "TaskRunner": "verl", "AgentLoopWorker": "verl",
    "Runner": "easyr1", "BatchFunctionRewardManager": "easyr1",
}  # fmt: skip
_PACKAGES = {"openrlhf": "openrlhf", "verl": "verl", "easyr1": "easyr1", "trl": "trl"}


def find_versions(events: Iterable[Event]) -> dict[str, tuple[str, str]]:
    """Package -> (version, basis), from banners and package lists; the first mention wins."""
    versions: dict[str, tuple[str, str]] = {}
    for event in events:
        version = event.fields.get(FIELD.version)
        if not version:
            continue
        package = {
            EVENT.deepspeed.version: "deepspeed", EVENT.vllm.version: "vllm", EVENT.nccl.version: "nccl",
        }.get(event.kind)  # fmt: skip
        if event.kind == EVENT.version.package:
            package = str(event.fields.get(FIELD.name, "")).lower()
            package = "nccl" if package.startswith("nvidia-nccl") else package
        if package:
            versions.setdefault(package, (str(version), str(event.origin)))
    return versions


def find_framework(
    events: Sequence[Event],
    settings: Sequence[Setting],
    versions: dict[str, tuple[str, str]],
    given: str | None = None,
) -> Framework | None:
    """The training framework of a run.

    Args:
        given: what the user said, `NAME` or `NAME==VERSION`; it wins.
    """
    if given:
        name, _, version = given.partition("==")
        return Framework(name=name.lower(), version=version or None, basis="--framework")
    votes: Counter[str] = Counter()
    basis: dict[str, str] = {}

    def vote(name: str, weight: int, where: str) -> None:
        votes[name] += weight
        basis.setdefault(name, where)

    for package, known in _PACKAGES.items():
        if package in versions:
            vote(known, 12, versions[package][1])
    for event in events:
        if event.origin.actor in _ACTORS:
            vote(_ACTORS[event.origin.actor], 1, str(event.origin))
        if event.kind == EVENT.framework.module:
            vote(_module(str(event.fields[FIELD.name])), 8, str(event.origin))
        path = event.fields.get(FIELD.path_text)
        if event.kind == EVENT.python.frame and isinstance(path, str):
            for part, name in (("/openrlhf/", "openrlhf"), ("EasyR1", "easyr1"), ("/Easy-r1/", "easyr1"),
                               ("simpleRL", "simplerl"), ("/verl/", "verl"), ("/trl/", "trl")):  # fmt: skip
                if part in path:
                    vote(name, 3, str(event.origin))
                    break
    for setting in settings:
        if setting.framework in FRAMEWORKS and setting.form != "dump":
            vote(setting.framework, 2, str(setting.origin))
    if not votes or max(votes.values()) < 4:
        return None
    if votes["easyr1"] and votes["verl"]:
        votes["easyr1"] += votes["verl"]  # EasyR1's package is named verl too
    if votes["simplerl"] and votes["verl"]:
        votes["simplerl"] += votes["verl"]  # a fork of verl
    name = max(votes, key=lambda key: (votes[key], key))
    own = versions[name][0] if name in versions else None
    since, until = _range(name, settings)
    return Framework(
        name=name, version=own, since=since, until=until,
        basis=versions[name][1] if own else basis[name],
    )  # fmt: skip


def _module(text: str) -> str:
    lowered = text.lower().replace("train_ppo_ray", "openrlhf")
    if lowered == "-m trainer.train":
        return "rlhfdoctor"  # the bundled trainer
    return next((name for name in ("openrlhf", "easyr1", "simplerl", "trl") if name in lowered), "verl")


def _range(name: str, settings: Sequence[Setting]) -> tuple[str | None, str | None]:
    """Oldest and newest release that accept every spelling seen in the user's own files."""
    since: str | None = None
    until: str | None = None
    if name not in FRAMEWORKS:
        return None, None
    for setting in settings:
        if setting.framework != name or setting.form in ("dump", "argv"):
            continue
        rows = [s for s in load_table(name) if normal(s.spelled) == normal(setting.spelled)]
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
