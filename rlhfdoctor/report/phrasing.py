"""Sentences that all forms of the report share: who killed what, where and when."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.i18n.words import ENGLISH, Words
from rlhfdoctor.types import Death, Framework, Incident, Patch
from rlhfdoctor.units import show_bytes, show_time
from rlhfdoctor.vocabulary import EVENT, FIELD

KILLER_SAYS = {
    "kernel-oom-cgroup": "the kernel's OOM killer, at a cgroup's memory limit",
    "kernel-oom-node": "the kernel's OOM killer, because the node ran out of memory",
    "ray-memory-monitor": "Ray's memory monitor",
    "cuda-oom": "a CUDA out-of-memory error",
    "object-store-full": "Ray's object store being full",
    "sigbus": "SIGBUS (shared memory could not be backed)",
    "collective-timeout": "a collective timeout",
    "sigkill-unknown": "SIGKILL from an unknown sender",
    "sigsegv": "SIGSEGV (a crash in native code)",
    "exception": "a Python exception",
    "other": "something outside the program",
}


VANISHED_SAYS = (
    "The process vanished without a word. An OOM kill, ray stop --force and a crash in native code all look like this from "
    "outside; the causes that Ray lists in its message are guesses, not findings."
)
"""Added if only the disappearance of the process is known."""


def headline(incident: Incident, t: Words = ENGLISH) -> str:
    """The verdict in one line."""
    best = incident.best
    if incident.verdict == "healthy":
        return t("healthy: nothing died in what was read")
    if incident.verdict == "cause" and best is not None:
        return f"{best.title}"
    if best is not None:
        return t("undecided: the evidence does not single out a cause")
    return t("undecided: a process died, and nothing read says why")


def killed(incident: Incident, t: Words = ENGLISH) -> str:
    """Who killed what, when and in which phase, in one sentence; empty where nothing died."""
    death = incident.death
    if death is None:
        return ""
    if not death.killer:
        when = t(", at {0}", show_time(death.time)) if death.time is not None else ""
        return t("nothing was killed: the run never got what it asked for") + when
    frame, by = _by_whom(death, t)
    return t(frame, _victim(death, t), by, "".join(t(", ") + part for part in _when(death, t)))


def _victim(death: Death, t: Words) -> str:
    victim = death.victim
    who = (victim.name or victim.role or t("a process")).rpartition("<locals>.")[2]
    role = f" ({t.of(victim.role)})" if victim.role and victim.name and victim.role != victim.name else ""
    parts = [f"{who}{role}"]
    if victim.pid is not None:
        parts.append(f"pid {victim.pid}")
    if victim.rank is not None:
        parts.append(f"rank {victim.rank}")
    if victim.bytes:
        parts.append(t("holding {0}", show_bytes(victim.bytes)))
    if death.node:
        parts.append(t("on {0}", death.node))
    return t(", ").join(parts)


def _by_whom(death: Death, t: Words) -> tuple[str, str]:
    """The sentence's frame, and who or what ended it."""
    code = (
        death.event.fields.get(FIELD.exit_code)
        if death.event is not None and death.event.kind == EVENT.trace.job_exit
        else None
    )
    if isinstance(code, int) and death.killer == "exception":
        return "{0}: ended with {1}{2}", t("exit status {0}", code)
    if isinstance(code, int) and death.killer == "other" and code < 0:
        return "{0}: killed by {1}{2}", t("signal {0}, from outside", -code)
    ended = death.killer in ("exception", "collective-timeout", "cuda-oom", "object-store-full", "other")
    by = t(KILLER_SAYS.get(death.killer, death.killer))
    return ("{0}: ended by {1}{2}" if ended else "{0}: killed by {1}{2}"), by


def _when(death: Death, t: Words) -> Iterator[str]:
    victim, culprit = death.victim, death.culprit
    if death.phase:
        yield t("in the {0} phase", t(death.phase.replace("_", " ")))
    if death.step is not None:
        yield t("after step {0}", death.step) if death.step else t("before the first step had ended")
    if death.time is not None:
        yield t("at {0}", show_time(death.time))
    if culprit is not None and culprit.pid != victim.pid and culprit.bytes and culprit.bytes > (victim.bytes or 0):
        yield t("while {0} (pid {1}) held {2}", culprit.name, culprit.pid, show_bytes(culprit.bytes))
    elif culprit is not None and culprit.pid == victim.pid and victim.pid is not None:
        yield t("and it was the one that held most")


def freed(patch: Patch, t: Words = ENGLISH) -> str:
    """What a patch frees of host memory, if it could be computed; otherwise empty."""
    if patch.host_bytes is None or not patch.host_bytes[0]:
        return ""
    most, least = (-size for size in patch.host_bytes)
    if most == least:
        return t("Frees {0} of host memory", show_bytes(most))
    return t("Frees {0} to {1} of host memory", show_bytes(least), show_bytes(most))


def sentence(text: str, t: Words = ENGLISH) -> str:
    """A part of speech with a capital, unless it begins with a name, and a full stop."""
    text = text.strip()
    proper = t is not ENGLISH or any(c.isupper() for c in text.split(" ")[0])
    return (text if proper else text[:1].upper() + text[1:]) + ("" if text.endswith((".", "。")) else t.stop)


def known_version(framework: Framework, t: Words = ENGLISH) -> str:
    """A framework with its version, or the range that the spelling of its settings leaves."""
    if framework.version:
        return f"{framework.package or framework.name} {framework.version.rpartition('!')[2]}"
    if framework.since or framework.until:
        return t(
            "{0} {1} to {2}, by the spelling of its settings",
            framework.name,
            framework.since or t("any"),
            framework.until or t("newest"),
        )
    return t("{0}, version unknown", framework.name)
