"""Sentences that all forms of the report share: who killed what, in which phase of the run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlhfdoctor.i18n.message import ENGLISH, NOTHING, Argument, Language, Message, joined, quoted, say, term
from rlhfdoctor.types import Death, Framework, Incident, Origin, Patch, Quote, Safety
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.run import SPOKEN, Killer

KILLER_SAYS: Mapping[Killer, Message] = {
    "kernel-oom-cgroup": say("the kernel's OOM killer, at a cgroup's memory limit"),
    "kernel-oom-node": say("the kernel's OOM killer, because the node ran out of memory"),
    "ray-memory-monitor": say("Ray's memory monitor"),
    "cuda-oom": say("a CUDA out-of-memory error"),
    "object-store-full": say("Ray's object store being full"),
    "sigbus": say("SIGBUS (shared memory could not be backed)"),
    "collective-timeout": say("a collective timeout"),
    "sigkill-unknown": say("SIGKILL from an unknown sender"),
    "sigsegv": say("SIGSEGV (a crash in native code)"),
    "exception": say("a Python exception"),
    "other": say("something outside the program"),
}
_ENDED: frozenset[Killer] = frozenset(("exception", "collective-timeout", "cuda-oom", "object-store-full", "other"))
"""They do not kill: the process ends by itself."""
VERDICTS: Mapping[str, Message] = {
    "cause": say("cause"),
    "undecided": say("undecided"),
    "healthy": say("healthy"),
    "inconclusive": say("inconclusive"),
}
SAFETIES: Mapping[Safety, Message] = {
    "safe": say("safe"),
    "consent": say("needs your consent"),
    "show": say("shown only"),
}
NOT_SET = say("(not set)")
_VANISHED_FROM_RAY = say(
    "It logged no cause, as after an OOM kill, ray stop --force or a crash in native code; the causes that Ray lists "
    "are guesses, not findings."
)
_VANISHED = say(
    "It logged no cause, as after an OOM kill, a kill by a person or a scheduler, or a crash in native code."
)


def vanished(death: Death | None) -> Message:
    """Added if only the disappearance of a process is known; else nothing."""
    if death is None or death.killer != "sigkill-unknown":
        return NOTHING
    return _VANISHED_FROM_RAY if death.event is not None and death.event.kind.scope == "ray" else _VANISHED


def headline(incident: Incident) -> Message:
    """The verdict in one line."""
    best = incident.best
    if incident.verdict == "healthy":
        return say("healthy: nothing died in what was read")
    if incident.verdict == "inconclusive":
        return say("inconclusive: nothing read says that the run died, nor that it ended well")
    if incident.verdict == "cause" and best is not None:
        return best.title
    if best is not None:
        return say("undecided: the evidence does not single out a cause")
    if incident.death is None:
        return say("undecided: a line reads like a failure, and no pattern knows it")
    return say("undecided: a process died, and nothing read says why")


def verdict_line(incident: Incident) -> Message:
    """The same with the cause's id and the confidence, where there is one."""
    best = incident.best
    if incident.verdict != "cause" or best is None:
        return headline(incident)
    return say(
        "cause: {title} ({cause}, confidence {confidence:.2f})",
        title=best.title,
        cause=best.cause,
        confidence=best.confidence,
    )


def killed(incident: Incident) -> Message:
    """Who killed what, when and in which phase, in one sentence; empty where nothing died."""
    death = incident.death
    if death is None:
        return NOTHING
    if not death.killer:
        never = say("not killed: the requested resources were never granted")
        return joined(never, say("at {at:time}", at=death.time), by=", ") if death.time is not None else never
    return joined(_by_whom(death, joined(*_victim(death), by=", ")), *_when(death), by=", ")


def _victim(death: Death) -> Iterator[Message]:
    victim = death.victim
    known = victim.name or victim.role
    who = quoted(known.rpartition("<locals>.")[2]) if known else say("a process")
    if victim.role and victim.name and victim.role != victim.name:
        who = say("{name} ({role})", name=who, role=_word(victim.role))
    yield who
    if victim.pid is not None:
        yield say("pid {pid}", pid=victim.pid)
    if victim.rank is not None:
        yield say("rank {rank}", rank=victim.rank)
    if victim.bytes:
        yield say("holding {held:bytes}", held=victim.bytes)
    if death.node:
        yield say("on {node}", node=death.node)


def _word(text: str) -> Argument:
    """A role or a phase, which languages have names for; else the text itself."""
    return term(text) if text in SPOKEN else text


def _by_whom(death: Death, victim: Message) -> Message:
    """The main clause: who or what ended it."""
    code = None
    if death.event is not None and death.event.kind == EVENT.trace.job_exit:
        code = death.event.fields.get(FIELD.exit_code)
    if isinstance(code, int) and death.killer == "exception":
        return say("{victim}: ended with exit status {code}", victim=victim, code=code)
    if isinstance(code, int) and death.killer == "other" and code < 0:
        return say("{victim}: killed by signal {number}, from outside", victim=victim, number=-code)
    if death.killer == "sigkill-unknown" and not death.certain:
        return say("{victim}: disappeared, by SIGKILL or a crash in native code", victim=victim)
    by = killer_says(death)
    if death.killer in _ENDED:
        return say("{victim}: ended by {killer}", victim=victim, killer=by)
    return say("{victim}: killed by {killer}", victim=victim, killer=by)


def killer_says(death: Death) -> Message:
    """Who or what ended it."""
    return KILLER_SAYS.get(death.killer, say("never began"))


def _when(death: Death) -> Iterator[Message]:
    victim, culprit = death.victim, death.culprit
    if death.phase:
        yield say("in the {phase} phase", phase=_word(death.phase.replace("_", " ")))
    if death.step is not None:
        yield say("after step {step}", step=death.step) if death.step else say("before the first step had ended")
    if death.time is not None:
        yield say("at {at:time}", at=death.time)
    if culprit is not None and culprit.pid != victim.pid and culprit.bytes and culprit.bytes > (victim.bytes or 0):
        yield say("while {name} (pid {pid}) held {held:bytes}", name=culprit.name, pid=culprit.pid, held=culprit.bytes)
    elif culprit is not None and culprit.pid == victim.pid and victim.pid is not None:
        yield say("and it was the one that held most")
    if not death.certain and death.event is not None and death.event.kind.scope == "kernel":
        yield say("if that kill is of this run")


def freed(patch: Patch) -> Message:
    """What a patch frees of host memory, if it could be computed; otherwise empty."""
    if patch.host_bytes is None or not patch.host_bytes[0]:
        return NOTHING
    most, least = (-size for size in patch.host_bytes)
    if most == least:
        return say("Frees {size:bytes} of host memory", size=most)
    return say("Frees {least:bytes} to {most:bytes} of host memory", least=least, most=most)


def change(patch: Patch) -> tuple[str | None, str] | None:
    """The value of the setting before and after; None for words in place of a setting, and where no value is put."""
    if patch.instead or patch.after in (None, "null"):
        return None
    return patch.before, patch.after


def place(quote: Quote) -> str:
    """The file of a quotation, with the line where one proves it; empty without a file."""
    return str(Origin(file=quote.file or "", line=quote.line))


def sentence(message: Message, t: Language = ENGLISH) -> str:
    """A message as a sentence of its own: with a capital, unless it begins with a name, and a full stop."""
    text = t(message).strip()
    proper = t is not ENGLISH or any(c.isupper() or c in "_.=/" for c in text.split(" ")[0])
    return (text if proper else text[:1].upper() + text[1:]) + ("" if text.endswith((".", "。")) else t.stop)


def known_version(framework: Framework) -> Message:
    """A framework with its version, or the range that the spelling of its settings leaves."""
    if framework.version:
        return quoted(f"{framework.package or framework.name} {framework.version.rpartition('!')[2]}")
    name, since, until = framework.name, framework.since, framework.until
    if since and until:
        versions = quoted(since) if since == until else say("{since} to {until}", since=since, until=until)
        return say("{name} {versions}, by the spelling of its settings", name=name, versions=versions)
    if since:
        return say("{name} {since} or newer, by the spelling of its settings", name=name, since=since)
    if until:
        return say("{name} {until} or older, by the spelling of its settings", name=name, until=until)
    return say("{name}, version unknown", name=framework.name)
