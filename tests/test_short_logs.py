"""One line is all there is: what must be seen in it, and what must not be said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze

LOGS = {
    "kernel, no last fields": (
        "Out of memory: Killed process 40822 (python) total-vm:8923144kB, anon-rss:511920kB",
        ("undecided", "kernel-oom-node", None),
    ),
    "kernel, cut behind the name": ("Out of memory: Killed process 40822 (python)", ("undecided", "kernel-oom-node", None)),
    "cgroup, cut": (
        "Memory cgroup out of memory: Killed process 40822 (python) total-vm:89...",
        ("cause", "kernel-oom-cgroup", "host-container-limit"),
    ),
    "reaper alone": ("oom_reaper: reaped process 40822 (python)", ("undecided", "kernel-oom-node", None)),
    "segmentation fault": (
        "bash: line 1: 2552014 Segmentation fault      (core dumped) python x.py",
        ("cause", "sigsegv", "other-software-error"),
    ),
    "NaN": ("NaN detected in loss, aborting.", ("cause", "exception", "other-software-error")),
    "NaN, in other words": ("ERROR: loss became nan at step 12, stopping", ("cause", "exception", "other-software-error")),
    "NaN, and on": ("{'loss': nan, 'grad_norm': nan, 'epoch': 0.2}", ("inconclusive", None, None)),
    "loss scale": (
        "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run.",
        ("cause", "exception", "other-software-error"),
    ),
    "KL": ("KL divergence 182.4 exceeded 50.0, stopping training", ("cause", "exception", "other-software-error")),
    "no log": ("echo hello", ("inconclusive", None, None)),
    "sys.exit in an actor": (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task. Worker exit type: "
        "SYSTEM_ERROR Worker exit detail: Worker exits with an exit code 1.",
        ("undecided", "exception", None),
    ),
    "ray.kill": (
        "ray.exceptions.ActorDiedError: The actor is dead because it was killed by `ray.kill`.",
        ("cause", "other", "other-killed-by-operator"),
    ),
    "Ray's memory monitor, by the type of exit": (
        "The actor is dead because its worker process has died. Worker exit type: NODE_OUT_OF_MEMORY",
        ("undecided", "ray-memory-monitor", None),
    ),
    "disk of spilled objects": ("ray.exceptions.OutOfDiskError: Local disk is full", ("cause", "object-store-full", "other-disk-full")),
    "zsh": ("zsh: killed     python x.py", ("undecided", "sigkill-unknown", None)),
}


@pytest.mark.parametrize("name", LOGS)
def test_short_log(name: str, tmp_path: Path) -> None:
    """Verdict, killer and first cause of a log of one line."""
    text, expected = LOGS[name]
    (tmp_path / "job.log").write_text(f"{text}\n")
    incident = analyze([str(tmp_path / "job.log")])
    cause = incident.best.cause if incident.best and incident.verdict == "cause" else None
    assert (incident.verdict, incident.death.killer if incident.death else None, cause) == expected
