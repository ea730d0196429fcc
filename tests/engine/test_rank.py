"""Findings: confidence by weights, echoes behind their root, sentences filled with figures."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.explain import explain
from rlhfdoctor.engine.rank import SHOWN_SCORE, fill, judge
from rlhfdoctor.i18n.language import load_language
from rlhfdoctor.i18n.message import NOTHING
from rlhfdoctor.places import rules_folder
from rlhfdoctor.types import Evidence, Incident
from rlhfdoctor.vocabulary import FACT

Case = Callable[[Mapping[str, str]], Incident]
RAY_KILL = (
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
    "Memory on the node (IP: 10.0.0.1, ID: ab) where the task (task ID: cd, name=Trainer.step, pid=91, memory used=4.10GB) was running was "
    "20.10GB / 33.20GB (0.605422), which exceeds the memory usage threshold of 0.6.\n"
)


def test_fill_shows_units() -> None:
    """Places in sentences are filled by value and unit; the unknown is called so."""
    used = Evidence(name=FACT.shm.used_bytes, value=2**30, says=NOTHING)
    facts = Facts(events={}, settings={}, evidence={used.name: used})
    assert (
        str(fill("{shm.used_bytes} of {shm.size_bytes}, {shm.full_ratio}", facts))
        == "1.00 GiB of an unknown amount, unknown"
    )


def test_low_threshold_is_the_verdict(case: Case) -> None:
    """Ray's kill at a lowered threshold is blamed on the threshold."""
    incident = case({"driver.log": RAY_KILL})
    assert (incident.verdict, incident.best.cause if incident.best else None) == ("cause", "host-ray-threshold")


def test_echo_is_folded(case: Case) -> None:
    """A refused connection after a certain kill is explained by it."""
    incident = case(
        {"driver.log": RAY_KILL + "RuntimeError: Connection refused\nActorUnavailableError: The actor is unavailable\n"}
    )
    echoes = {f.cause: f.explained_by for f in incident.findings if f.explained_by}
    assert echoes == {"comm-peer-died": "host-ray-threshold"}


def test_missing_input_lowers_nothing_but_is_listed(case: Case) -> None:
    """What is unknown is asked for with a command."""
    incident = case({"driver.log": RAY_KILL})
    assert "grep -E 'MemAvailable|Shmem|^Cached' /proc/meminfo" in {
        str(m.settle) for f in incident.findings for m in f.missing
    }


def test_first_failure_counts_not_the_loudest(case: Case) -> None:
    """A kill before many timeouts is the death; the timeouts are not."""
    timeout = (
        "[2025-04-02 15:40:00,117] [rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, "
        "NumelOut=1, Timeout(ms)=1800000) ran for 1800246 milliseconds before timing out.\n"
    )
    kill = "[2025-04-02 15:02:00,117 E 1 1] (raylet) " + RAY_KILL.splitlines()[1] + "\n"
    incident = case({"driver.log": timeout * 20, "raylet.out": kill})
    assert incident.death is not None
    assert incident.death.killer == "ray-memory-monitor"


def test_settings_alone_prove_nothing(case: Case) -> None:
    """Offload, sleep and cache settings without a footprint in a log name no cause."""
    launch = "python3 -m verl.trainer.main_ppo \\\n  actor_rollout_ref.actor.fsdp_config.optimizer_offload=True \\\n  actor_rollout_ref.rollout.free_cache_engine=True\n"
    incident = case({"launch.sh": launch, "driver.log": "step:1 - actor/lr:0.0\n"})
    assert (incident.verdict, incident.findings) == ("inconclusive", ())


def test_conditions_of_one_rule_meet_on_one_host(case: Case) -> None:
    """The offload of one node is no evidence for the death on another."""
    adam = "(ActorModelRayActor pid=7, ip=10.0.0.9) [2025-01-11 10:31:47,441] DeepSpeed Basic Optimizer = DeepSpeedCPUAdam\n"
    lost = "(CriticModelRayActor pid=8, ip=10.0.0.9) [2025-01-11 13:09:02,441] Fatal Python error: Segmentation fault\n"
    kill = (
        "[2025-01-11 13:08:00,117 E 1 1] (raylet, ip=10.0.0.1) "
        + RAY_KILL.splitlines()[1].replace("0.6.", "0.95.")
        + "\n"
    )
    incident = case({"driver.log": adam + kill + lost})
    assert incident.death is not None
    assert (incident.death.node, [f.cause for f in incident.findings if f.cause == "host-optimizer-offload"]) == (
        "10.0.0.1",
        [],
    )


def test_culprit_is_told_from_the_victim(case: Case) -> None:
    """Who held most in the kernel's task table is named beside who was killed."""
    table = "[  pid  ]   uid  tgid total_vm      rss pgtables_bytes swapents oom_score_adj name\n"
    rows = "[ 7]     0   7  2000  9000  4096  0  -900 ray::CriticMode\n[ 8]     0   8  2000   500  4096  0  0 python\n"
    killed = "Out of memory: Killed process 8 (python) total-vm:8000kB, anon-rss:2000kB, file-rss:0kB, shmem-rss:0kB, UID:0\n"
    death = case({"dmesg.txt": table + rows + killed}).death
    assert death is not None
    assert death.culprit is not None
    assert (death.victim.pid, death.culprit.pid, death.culprit.role) == (8, 7, "critic")


def test_runner_up_says_how_it_differs() -> None:
    """By the first finding's row about it, in the reader's language; the page shows the same words."""
    incident = analyze([str(rules_folder() / "comm-moe-expert-desync" / "fires" / "experts")])
    runner_up = next(f for f in incident.findings if f.cause == "comm-zero3-generate-desync")
    assert str(runner_up.differs) == "dense models too, only inside generate"
    chinese = load_language("zh")
    differs = chinese(runner_up.differs)
    assert differs != str(runner_up.differs)
    rule = next(rule for rule in load_rules() if rule.id == "comm-moe-expert-desync")
    assert "comm-zero3-generate-desync (dense models too, only inside generate), comm-shape-mismatch." in " ".join(
        explain(rule).split()
    )
    written = "".join(f"comm-zero3-generate-desync（{differs}）、comm-shape-mismatch。".split())
    assert written in "".join(explain(rule, chinese).split())


def test_weights_are_the_rules_own(tmp_path: Path) -> None:
    """Changed in the rule's file, a weight counts; no other file has a say."""
    shutil.copytree(rules_folder(), tmp_path / "rules")
    path = tmp_path / "rules" / "host-leak" / "rule.yaml"
    first = next(rule for rule in load_rules() if rule.id == "host-leak").speaks_for[0]
    before = f"weight: {first.weight}"
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, "weight: 9.9", 1))
    assert next(rule for rule in load_rules(tmp_path / "rules") if rule.id == "host-leak").speaks_for[0].weight == 9.9


def test_a_step_that_floats_cannot_hold_shows_nothing() -> None:
    """A score that is the bound but for the rounding of its sum is not shown."""
    quiet = analyze([str(rules_folder().parent / "samples" / "ray-cgroup-kill-no-kernel-log" / "run")]).findings
    assert all(f.score > SHOWN_SCORE + 1e-6 for f in quiet)


@pytest.mark.parametrize("ratio", [0.38, 0.395, 0.41])
def test_no_share_falls_between_two_conditions(ratio: float) -> None:
    """Data loaders that may hold half of a limit speak against it, just below and just above 40 %, too."""
    shares = {FACT.share.loader_ratio: ratio, FACT.share.loader_most_ratio: 0.6}
    facts = Facts(
        events={},
        settings={},
        evidence={name: Evidence(name=name, value=value, says=NOTHING) for name, value in shares.items()},
    )
    rule = next(rule for rule in load_rules() if rule.id == "host-container-limit")
    assert (
        len(
            [
                quote
                for quote in judge(rule, facts).against
                if "processes beside" in str(quote.says) or "data loader workers" in str(quote.says)
            ]
        )
        == 1
    )
