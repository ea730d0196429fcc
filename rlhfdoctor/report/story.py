"""Sentences that all forms of the report share: who killed what, where and when."""

from __future__ import annotations

from rlhfdoctor.types import Incident, Patch
from rlhfdoctor.units import show_bytes, show_time

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
"""Said with a death of which only the disappearance is known."""


def headline(incident: Incident) -> str:
    """The verdict in one line."""
    best = incident.best
    if incident.verdict == "healthy":
        return "healthy: nothing died in what was read"
    if incident.verdict == "cause" and best is not None:
        return f"{best.title}"
    if best is not None:
        return "undecided: the evidence does not single out a cause"
    return "undecided: a process died, and nothing read says why"


def killed(incident: Incident) -> str:
    """Who killed what, when and in which phase, in one sentence; empty where nothing died."""
    death = incident.death
    if death is None:
        return ""
    if not death.killer:
        return "nothing was killed: the run never got what it asked for" + (
            f", at {show_time(death.time)}" if death.time is not None else ""
        )
    victim = death.victim
    who = (victim.name or victim.role or "a process").rpartition("<locals>.")[2]
    role = f" ({victim.role})" if victim.role and victim.name and victim.role != victim.name else ""
    parts = [f"{who}{role}"]
    if victim.pid is not None:
        parts.append(f"pid {victim.pid}")
    if victim.rank is not None:
        parts.append(f"rank {victim.rank}")
    if victim.bytes:
        parts.append(f"holding {show_bytes(victim.bytes)}")
    if death.node:
        parts.append(f"on {death.node}")
    by = KILLER_SAYS.get(death.killer, death.killer)
    when = []
    if death.phase:
        when.append(f"in the {death.phase.replace('_', ' ')} phase")
    if death.step is not None:
        when.append(f"after step {death.step}" if death.step else "before the first step had ended")
    if death.time is not None:
        when.append(f"at {show_time(death.time)}")
    verb = (
        "ended by"
        if death.killer in ("exception", "collective-timeout", "cuda-oom", "object-store-full", "other")
        else "killed by"
    )
    code = (
        death.event.fields.get("exit_code")
        if death.event is not None and death.event.kind == "trace.job_exit"
        else None
    )
    if isinstance(code, int) and death.killer == "exception":
        verb, by = "ended with", f"exit status {code}"
    elif isinstance(code, int) and death.killer == "other" and code < 0:
        verb, by = "killed by", f"signal {-code}, from outside"
    culprit = death.culprit
    if culprit is not None and culprit.pid != victim.pid and culprit.bytes and culprit.bytes > (victim.bytes or 0):
        when.append(f"while {culprit.name} (pid {culprit.pid}) held {show_bytes(culprit.bytes)}")
    elif culprit is not None and culprit.pid == victim.pid and victim.pid is not None:
        when.append("and it was the one that held most")
    return f"{', '.join(parts)}: {verb} {by}{', ' + ', '.join(when) if when else ''}"


def freed(patch: Patch) -> str:
    """What a patch frees of host memory, where that could be computed; empty else."""
    if patch.host_bytes is None or not patch.host_bytes[0]:
        return ""
    most, least = (-size for size in patch.host_bytes)
    return f"Frees {show_bytes(most) if most == least else f'{show_bytes(least)} to {show_bytes(most)}'} of host memory"


def sentence(text: str) -> str:
    """A part of speech with a capital, unless it begins with a name, and a full stop."""
    text = text.strip()
    proper = any(c.isupper() for c in text.split(" ")[0])
    return (text if proper else text[:1].upper() + text[1:]) + ("" if text.endswith(".") else ".")
