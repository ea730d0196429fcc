"""The folder of a recorded run as `doctor analyze` reads it: traces, logs, and the configuration that was in force."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.errors import SourceError
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.record.start import shell_line
from rlhfdoctor.record.surroundings import keep_configs, our_surroundings
from rlhfdoctor.sources.procfs import read_boot_id
from rlhfdoctor.trace import run
from rlhfdoctor.trace.run import find_runs, read_run
from rlhfdoctor.types import Incident
from rlhfdoctor.units import GIB, MIB
from tests.record.build import CGROUP, LIMIT_BYTES, event, kernel_lines, steps, write_run

SECONDS = 120
KILLED_S = 119.0
SCRIPT = (
    "deepspeed --module openrlhf.cli.train_ppo_ray \\\n"
    "  --pretrain Qwen/Qwen2.5-7B --save_steps 20 --adam_offload --dataloader_num_workers 8\n"
)
Doctor = Callable[..., Result]


def record(folder: Path, node: str = "n1", *, killed: bool = True, config: Path | None = None, boot_id: str | None = None) -> Path:
    """A run whose actor grew by 100 MiB a second until the kernel killed it at the cgroup's limit."""
    folder.mkdir(parents=True)
    configs = keep_configs(folder, ["bash", str(config)], our_surroundings()) if config is not None else []
    boot_id = boot_id or read_boot_id()
    end = [
        event("oom_kill", KILLED_S, level=CGROUP, count=1, used_bytes=LIMIT_BYTES, max_bytes=LIMIT_BYTES),
        event("process.gone", KILLED_S, uid=1, pid=1001, name="actor", role="actor", rss_anon_bytes=15 * GIB),
        event("job.exited", KILLED_S, pid=1001, code=-9),
    ]
    most = LIMIT_BYTES / MIB
    write_run(
        folder,
        SECONDS,
        use=lambda t: most - (SECONDS - t) * 100 if killed else 1000,
        anon={"actor": lambda t: most - (SECONDS - t) * 100 - 500},
        events=[*steps(12, 10), *(end if killed else [event("job.exited", KILLED_S, pid=1001, code=0)])],
        run={"configs": configs, "boot_id": boot_id},
        node=node,
    )
    if killed:
        (folder / "logs" / "kernel.log").write_text(kernel_lines(KILLED_S, 1001))
    (folder / "logs" / "job.log").write_text("step:11 - actor/pg_loss:0.1\n")
    return folder


def told(incident: Incident) -> tuple[str, str | None, str | None, str | None]:
    """Verdict, killer, role of the victim, cause."""
    death, best = incident.death, incident.best
    killer, role = (death.killer, death.victim.role) if death is not None else (None, None)
    return incident.verdict, killer, role, best.cause if best is not None else None


LEAK = ("cause", "kernel-oom-cgroup", "actor", "host-leak")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """The user's launch script."""
    path = tmp_path / "launch.sh"
    path.write_text(SCRIPT)
    return path


def places(incident: Incident) -> set[str]:
    """The files that tell settings."""
    return {setting.origin.file for setting in incident.settings}


def test_verdict(tmp_path: Path) -> None:
    """The folder alone gives killer, victim and cause."""
    assert told(analyze([str(record(tmp_path / "run"))])) == LEAK


def test_verdict_without_a_kernel_log(tmp_path: Path) -> None:
    """The recorder's counters are enough where the kernel log could not be read."""
    folder = record(tmp_path / "run")
    (folder / "logs" / "kernel.log").unlink()
    assert told(analyze([str(folder)])) == LEAK


def test_good_end(tmp_path: Path) -> None:
    """A run that ended well is healthy."""
    assert told(analyze([str(record(tmp_path / "run", killed=False))]))[:2] == ("healthy", None)


def test_kill_of_another_job(tmp_path: Path) -> None:
    """A kill in the node's kernel log of a process that was never followed is not this run's."""
    folder = record(tmp_path / "run", killed=False)
    (folder / "logs" / "kernel.log").write_text(kernel_lines(60, 424242, "/other"))
    assert told(analyze([str(folder)]))[:2] == ("healthy", None)


def test_counter_of_the_node(tmp_path: Path) -> None:
    """The node's kill counter that rises while a small process of the run ends well is not this run's."""
    events = [
        event("oom_kill", 60, level="node", count=1),
        event("process.gone", 61, uid=1, pid=1001, name="sleep", role=None, rss_anon_bytes=MIB),
        event("job.exited", 61, pid=1001, code=0),
    ]
    write_run(tmp_path / "run", SECONDS, use=lambda t: 1000, anon={"actor": lambda t: 1}, events=events)
    assert told(analyze([str(tmp_path / "run")]))[:2] == ("healthy", None)


@pytest.mark.parametrize(("code", "killer"), [(-9, "sigkill-unknown"), (-11, "sigsegv"), (3, "exception"), (0, None)])
def test_exit_status(tmp_path: Path, code: int, killer: str | None) -> None:
    """The command's exit status alone says how it ended."""
    events = [event("job.exited", 60, pid=1001, code=code)]
    write_run(tmp_path / "run", SECONDS, use=lambda t: 1000, anon={"actor": lambda t: 500}, events=events)
    assert told(analyze([str(tmp_path / "run")]))[1] == killer


def test_own_configuration(tmp_path: Path, script: Path) -> None:
    """A configuration that is still the same is read and patched where it is the user's."""
    folder = record(tmp_path / "run", config=script)
    incident = analyze([str(folder)])
    patched = {patch.file for finding in incident.findings for patch in finding.patches if patch.diff}
    assert (places(incident), patched) == ({str(script)}, {str(script)})
    assert [gap for gap in incident.gaps if str(script) in str(gap.what)] == []


def test_own_configuration_of_another_boot(tmp_path: Path, script: Path) -> None:
    """Who sent the folder may know what lies where: the copy is read, the file only if it is named."""
    folder = record(tmp_path / "run", config=script, boot_id="another")
    for paths, written in (([str(folder)], set()), ([str(folder), str(script)], {str(script)})):
        incident = analyze(paths)
        patched = {patch.file for finding in incident.findings for patch in finding.patches if patch.diff}
        assert (places(incident), patched) == ({str(folder / "config" / "1-launch.sh"), *written}, written)


def test_files_that_run_json_names(tmp_path: Path, script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is read once, none of another boot, none whose size the kernel does not know."""
    folder = record(tmp_path / "run", config=script)
    kept = json.loads((folder / "run.json").read_text())
    one = kept["configs"][0]
    kept["configs"] = [one] * 50 + [{**one, "path": "/proc/kmsg"}, {**one, "path": "/proc/version"}]
    (folder / "run.json").write_text(json.dumps(kept))
    read: list[str] = []

    def reads(path: object, *args: Any, **checks: Any) -> bytes:
        read.append(str(path))
        return read_bytes(path, *args, **checks)  # type: ignore[arg-type]

    monkeypatch.setattr(run, "read_bytes", reads)
    analyze([str(folder)])
    assert read == [str(script)]
    kept["boot_id"] = "another"
    (folder / "run.json").write_text(json.dumps(kept))
    analyze([str(folder)])
    assert read == [str(script)]


def test_changed_configuration(tmp_path: Path, script: Path) -> None:
    """Of one that has changed since the copy tells the settings, a gap says so, and nothing is patched."""
    folder = record(tmp_path / "run", config=script)
    script.write_text(SCRIPT.replace("--save_steps 20", "--save_steps 99"))
    incident = analyze([str(folder)])
    copy = folder / "config" / "1-launch.sh"
    assert places(incident) == {str(copy)}
    assert {setting.value for setting in incident.settings if setting.name == "checkpoint.save_steps"} == {20}
    assert [str(gap.what) for gap in incident.gaps if "has changed since the run" in str(gap.why)] == [str(script)]
    assert [patch.diff for finding in incident.findings for patch in finding.patches if patch.diff] == []


@pytest.mark.parametrize("where", ["launch.sh", "config/launch.sh"])
def test_what_somebody_laid_beside(tmp_path: Path, where: str) -> None:
    """A launch script that was put into the run's folder is read and patched there; the recorder's own files are not text."""
    folder = record(tmp_path / "run")
    (folder / where).parent.mkdir(exist_ok=True)
    (folder / where).write_text(SCRIPT)
    incident = analyze([str(folder)])
    patched = {patch.file for finding in incident.findings for patch in finding.patches if patch.diff}
    assert (places(incident), patched) == ({str(folder / where)}, {str(folder / where)})
    assert [gap for gap in incident.gaps if str(gap.what).endswith((".trace", ".json", "lock"))] == []


def test_configuration_that_is_gone(tmp_path: Path, script: Path) -> None:
    """Of one that is not there any more the copy is read, without a word."""
    folder = record(tmp_path / "run", config=script)
    script.unlink()
    incident = analyze([str(folder)])
    assert places(incident) == {str(folder / "config" / "1-launch.sh")}
    assert [gap for gap in incident.gaps if "has changed" in str(gap.why)] == []


def test_copies_are_not_written(tmp_path: Path, script: Path, doctor: Doctor) -> None:
    """`doctor patch --write` leaves the copy in the run's folder as it was."""
    folder = record(tmp_path / "run", config=script)
    script.unlink()
    doctor("patch", folder, "--write", "--consent", "host-leak")
    assert (folder / "config" / "1-launch.sh").read_text() == SCRIPT


def test_command_line(tmp_path: Path) -> None:
    """The command line itself tells settings, which are shown and not patched."""
    folder = record(tmp_path / "run")
    (folder / "command.sh").write_text(shell_line(SCRIPT.replace("\\", "").split()) + "\n")
    incident = analyze([str(folder)])
    assert places(incident) == {str(folder / "command.sh")}
    assert [patch.diff for finding in incident.findings for patch in finding.patches if patch.diff] == []


def test_versions(tmp_path: Path) -> None:
    """Versions that were kept are those of the framework that the log shows; alone they name none: a venv holds many."""
    folder = record(tmp_path / "run")
    (folder / "versions.txt").write_text("openrlhf==0.5.3\nray==2.9.0\n")
    assert analyze([str(folder)]).framework is None
    (folder / "logs" / "job.log").write_text("+ python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3\n")
    framework = analyze([str(folder)]).framework
    assert framework is not None
    assert (framework.name, framework.version) == ("openrlhf", "0.5.3")


@pytest.mark.parametrize("damage", ["middle", "tail", "garbage behind"])
def test_damaged_trace(tmp_path: Path, damage: str) -> None:
    """A damaged trace is a gap, and the verdict comes all the same."""
    folder = record(tmp_path / "run")
    path = folder / "000001.trace"
    data = bytearray(path.read_bytes())
    broken = {
        "middle": data[:3500] + bytes(200) + data[3700:],
        "tail": data[:-30],
        "garbage behind": data + b"\xd7RD\n" + b"\xff" * 500,
    }
    path.write_bytes(broken[damage])
    incident = analyze([str(folder)])
    assert [str(gap.what) for gap in incident.gaps if str(gap.what) == str(path)][:1] == [str(path)]
    assert told(incident) == LEAK


@pytest.fixture
def zeroed(tmp_path: Path) -> Path:
    """A run whose trace is nothing but zeros."""
    folder = record(tmp_path / "run")
    path = folder / "000001.trace"
    path.write_bytes(bytes(path.stat().st_size))
    return folder


def test_trace_of_zeros(zeroed: Path) -> None:
    """Of a trace that is nothing but zeros a gap says that it is damaged."""
    path = str(zeroed / "000001.trace")
    assert [
        "damaged" in str(gap.why) or "cut off" in str(gap.why)
        for gap in analyze([str(zeroed)]).gaps
        if str(gap.what) == path
    ] == [True]


def test_kill_beside_a_trace_of_zeros(zeroed: Path) -> None:
    """Where the trace knows no process, the kill in the kernel log is not taken for another job's."""
    assert told(analyze([str(zeroed)]))[1] == "kernel-oom-cgroup"


def test_run_file_that_is_damaged(tmp_path: Path) -> None:
    """Without a readable run.json the trace tells the same story."""
    folder = record(tmp_path / "run")
    (folder / "run.json").write_text('{"schema": "rlhfd')
    assert told(analyze([str(folder)])) == LEAK


def test_folder_without_a_trace(tmp_path: Path) -> None:
    """A folder of nodes in which no recorder wrote anything says so."""
    (tmp_path / "run" / "nodes" / "n1").mkdir(parents=True)
    with pytest.raises(SourceError, match="no trace in it"):
        analyze([str(tmp_path / "run")])


def test_find_runs(tmp_path: Path) -> None:
    """A folder is a run, holds runs right below it, or neither; files and standard input are no runs."""
    runs = [record(tmp_path / "runs" / name) for name in ("b", "a")]
    (tmp_path / "file").touch()
    found = [find_runs(str(path)) for path in (tmp_path / "runs", runs[0], tmp_path, tmp_path / "file", "-", "\0")]
    assert found == [sorted(runs), [runs[0]], [], [], [], []]


def test_folder_of_runs(tmp_path: Path) -> None:
    """Of a folder that contains runs each one is read, also where the first one ended well."""
    record(tmp_path / "runs" / "1", killed=False)
    record(tmp_path / "runs" / "2")
    incident = analyze([str(tmp_path / "runs")])
    assert told(incident)[:3] == LEAK[:3]


def test_nodes(tmp_path: Path) -> None:
    """The traces of several nodes are one run; the death is the node's where it happened."""
    record(tmp_path / "run" / "nodes" / "n1", "n1", killed=False)
    record(tmp_path / "run" / "nodes" / "n2", "n2")
    run, incident = read_run(tmp_path / "run"), analyze([str(tmp_path / "run")])
    assert [trace.node.node for trace in run.traces] == ["n1", "n2"]
    assert told(incident) == LEAK
    assert incident.death is not None
    assert incident.death.node == "n2"


def test_logs_beside(tmp_path: Path) -> None:
    """Other logs that are given beside the run are read with it."""
    folder = record(tmp_path / "run", killed=False)
    (tmp_path / "driver.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB.\n")
    assert told(analyze([str(folder), str(tmp_path / "driver.log")]))[1] == "cuda-oom"


def test_mark_with_a_time_that_is_none(tmp_path: Path) -> None:
    """A mark whose time is no number does not hide the verdict."""
    bad = event("mark", 5, phase="rollout", basis="trainer", at_ns="yesterday")
    write_run(tmp_path / "run", SECONDS, use=lambda t: 1000, anon={"actor": lambda t: 500}, events=[bad])
    assert analyze([str(tmp_path / "run")]).verdict == "inconclusive"
