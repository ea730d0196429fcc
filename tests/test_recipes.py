"""Every file below samples/recipes runs, in what comes nearest to its home."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "samples" / "recipes"
NO_FIT = ROOT / "samples" / "openrlhf-save-kill" / "run" / "launch.sh"
KILL = """\
2026-01-02T03:04:05,000000+00:00 python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0
2026-01-02T03:04:05,000001+00:00 memory: usage 204800kB, limit 204800kB, failcnt 9
2026-01-02T03:04:05,000002+00:00 oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/slurm/uid_7/job_{job},task_memcg=/slurm/uid_7/job_{job}/step_batch,task=python3,pid={pid},uid=7
2026-01-02T03:04:05,000003+00:00 Memory cgroup out of memory: Killed process {pid} (python3) total-vm:226896kB, anon-rss:203648kB, file-rss:2400kB, shmem-rss:0kB, UID:7 pgtables:456kB oom_score_adj:0
"""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH with this tree's own `doctor`."""
    folder = tmp_path / "bin"
    folder.mkdir()
    script(folder / "doctor", f'export PYTHONPATH="{ROOT}${{PYTHONPATH:+:$PYTHONPATH}}"\nexec "{sys.executable}" -m rlhfdoctor "$@"')
    return folder


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)


def run(command: list[str], tools: Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", **more}
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)


def test_page_names_every_file() -> None:
    """And nothing that is not there."""
    import re

    named = set(re.findall(r"\]\(([\w./-]+)\)", (RECIPES / "README.md").read_text()))
    assert named == {str(p.relative_to(RECIPES)) for p in RECIPES.rglob("*") if p.is_file() and p.name != "README.md"}


@pytest.mark.parametrize(("options", "status"), [("--container-memory=2T\n--host-memory=4T\n", 0), ("", 1), ("--host-memory=$(touch pwned)", 2)])
def test_github_action(options: str, status: int, tools: Path, tmp_path: Path) -> None:
    """Its step ends with the estimate's status and writes the line into the summary; inputs are no shell."""
    action = yaml.safe_load((RECIPES / "github-action" / "action.yml").read_text())
    *_, step = action["runs"]["steps"]
    assert all("${{" not in one["run"] for one in action["runs"]["steps"])
    launch = tmp_path / "a launch.sh"
    launch.write_text(NO_FIT.read_text() if status else NO_FIT.read_text().replace("--memory=500g", "").replace("500g", "4000g"))
    summary = tmp_path / "summary.md"
    # as GitHub's runner starts `shell: bash`
    done = run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]], tools, tmp_path, PATHS="a launch.sh\n", OPTIONS=options, GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == status, done.stdout + done.stderr
    assert not (tmp_path / "pwned").exists()
    if status < 2:
        assert summary.read_text() == f"`{done.stdout.strip()}`\n" and done.stdout.startswith("doctor estimate: ")


def test_workflow_uses_the_action() -> None:
    """With inputs that it has."""
    action = yaml.safe_load((RECIPES / "github-action" / "action.yml").read_text())
    flow = yaml.safe_load((RECIPES / "github-action" / "workflow.yml").read_text())
    given = flow["jobs"]["estimate"]["steps"][-1]["with"]
    assert set(given) <= set(action["inputs"]) and {name for name, one in action["inputs"].items() if one.get("required")} <= set(given)


def test_pre_commit(tools: Path, tmp_path: Path) -> None:
    """The real program takes the manifest, and its hook stops a commit that will not fit."""
    pytest.importorskip("pre_commit", reason="pre-commit is not installed")
    pre_commit = [sys.executable, "-m", "pre_commit"]
    manifest = ROOT / ".pre-commit-hooks.yaml"
    home = {"PRE_COMMIT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    assert run([*pre_commit, "validate-manifest", str(manifest)], tools, tmp_path, **home).returncode == 0
    (hook,) = yaml.safe_load(manifest.read_text())
    example = yaml.safe_load((RECIPES / "pre-commit" / "pre-commit-config.yaml").read_text())["repos"][0]["hooks"][0]
    assert example["id"] == hook["id"]
    work = tmp_path / "work"
    work.mkdir()
    local = {**hook, "language": "system", "files": example["files"]}  # `python` would install the package
    (work / ".pre-commit-config.yaml").write_text(yaml.safe_dump({"repos": [{"repo": "local", "hooks": [local]}]}))
    shutil.copy(NO_FIT, work / "launch.sh")
    (work / "notes.txt").write_text("not configuration\n")
    for command in (["git", "init", "-q"], ["git", "add", "-A"]):
        subprocess.run(command, cwd=work, check=True)
    done = run([*pre_commit, "run", "--all-files"], tools, work, **home)
    assert (done.returncode, "will not fit" in done.stdout) == (1, True), done.stdout + done.stderr


def test_slurm_prolog_and_epilog(tools: Path, tmp_path: Path) -> None:
    """With the environment that slurm documents: a verdict for the job that was killed, by its own kill alone."""
    notes, work = tmp_path / "notes", tmp_path / "work"
    work.mkdir()
    (work / "ppo-5.out").write_text("step 1\nslurmstepd: error: Detected 1 oom-kill event(s) in StepId=5.batch.\n")
    (work / "ppo-6.out").write_text("step 1\n")
    (tmp_path / "dmesg.txt").write_text(KILL.format(job=55, pid=111) + KILL.format(job=5, pid=4711))
    script(tools / "dmesg", f"cat {tmp_path / 'dmesg.txt'}")
    script(tools / "scontrol", f'echo "   StdOut={work}/ppo-$3.out"')
    verdicts = {}
    for job in ("5", "6"):
        env = {"SLURM_JOB_ID": job, "SLURM_JOB_UID": str(os.getuid()), "SLURM_JOB_GID": str(os.getgid()), "SLURM_JOB_STDOUT": f"{work}/ppo-%j.out", "DOCTOR_NOTES": str(notes), "DOCTOR": str(tools / "doctor")}
        assert run([str(RECIPES / "slurm" / "prolog.sh")], tools, tmp_path, **env).returncode == 0
        (notes / job).write_text("2026-01-01 00:00:00\n")
        assert run([str(RECIPES / "slurm" / "epilog.sh")], tools, tmp_path, **env).returncode == 0
        verdicts[job] = [path.read_text() for path in work.glob(f"doctor-{job}-*")]
    (text,) = verdicts["5"]
    assert "4711" in text and "111" not in text and "cgroup's memory limit" in text
    assert (verdicts["6"], list(notes.iterdir())) == ([], [])


@pytest.mark.parametrize("job", ["", "../etc", "7"])
def test_epilog_without_a_prolog(job: str, tools: Path, tmp_path: Path) -> None:
    """Does nothing, and ends with 0: anything else drains the node."""
    env = {"SLURM_JOB_ID": job, "SLURM_JOB_STDOUT": str(tmp_path / "x.out"), "DOCTOR_NOTES": str(tmp_path / "notes")}
    assert run([str(RECIPES / "slurm" / "epilog.sh")], tools, tmp_path, **env).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_slurm_job(tools: Path, tmp_path: Path) -> None:
    """A script that will not fit does not start; another one is recorded, and its status passes through."""
    shutil.copy(NO_FIT, tmp_path / "launch.sh")
    stopped = run([str(RECIPES / "slurm" / "job.sh")], tools, tmp_path, SLURM_JOB_ID="8")
    assert (stopped.returncode, "will not fit" in stopped.stdout, (tmp_path / "doctor-runs").exists()) == (1, True, False)
    (tmp_path / "other.sh").write_text("echo trained\nexit 7\n")
    done = run([str(RECIPES / "slurm" / "job.sh"), "other.sh"], tools, tmp_path, SLURM_JOB_ID="9")
    assert (done.returncode, "trained" in done.stdout) == (7, True), done.stderr
    assert (tmp_path / "doctor-runs" / "9" / "run.json").is_file()


def test_ray_entry_point(tools: Path, tmp_path: Path) -> None:
    """Records its command outside of the job's folder, and passes the status through."""
    done = run(["bash", str(RECIPES / "ray" / "entrypoint.sh"), "sh", "-c", "echo trained; exit 3"], tools, tmp_path, DOCTOR_RUNS=str(tmp_path / "runs"))
    assert (done.returncode, "trained" in done.stdout) == (3, True), done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    assert json.loads((folder / "run.json").read_text())["argv"][0] == "sh"
    assert run(["bash", str(RECIPES / "ray" / "entrypoint.sh")], tools, tmp_path).returncode == 2


def manifests() -> list[Any]:
    return [pytest.param(yaml.safe_load(path.read_text()), id=path.stem) for path in sorted((RECIPES / "kubernetes").glob("*.yaml"))]


@pytest.mark.parametrize("manifest", manifests())
def test_kubernetes_schema(manifest: dict[str, Any]) -> None:
    """By the schema of Kubernetes, strictly: no key that it does not know."""
    checker = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for version in ("1.29", checker.latest_version().rpartition(".")[0]):
        checker.validate(manifest, version, strict=True)


@pytest.mark.parametrize("manifest", manifests())
def test_kubernetes_commands(manifest: dict[str, Any], tmp_path: Path) -> None:
    """The doctor's options are its own, and volumes that are mounted exist."""
    from rlhfdoctor.cli.watch import watch

    pod = manifest["spec"].get("template", manifest)["spec"]
    volumes = {volume["name"] for volume in pod["volumes"]}
    found = []
    for container in (*pod.get("initContainers", []), *pod["containers"]):
        assert {mount["name"] for mount in container.get("volumeMounts", [])} <= volumes
        words = container["command"] if container["command"][0] == "doctor" else container["command"][-1].split("exec ")[-1].replace('"$pid"', "7").split()
        if words[:2] == ["doctor", "watch"]:
            found.append(watch.make_context("watch", list(words[2:])).params)
    assert len(found) == 1 and found[0]["no_view"] and str(found[0]["out"]).strip('"').startswith("/runs/")


@pytest.mark.skipif(shutil.which("pgrep") is None, reason="pgrep is not installed")
def test_sidecar_finds_the_trainer(tools: Path, tmp_path: Path) -> None:
    """Its own shell, whose command line holds the pattern too, is not taken for the training."""
    manifest = yaml.safe_load((RECIPES / "kubernetes" / "sidecar.yaml").read_text())
    text = manifest["spec"]["initContainers"][0]["command"][-1]
    name = f"train{os.getpid()}.py"
    (tmp_path / name).write_text("import sys; print('up', flush=True); sys.stdin.read()")
    script(tools / "doctor", 'echo "$@"')
    with subprocess.Popen([sys.executable, name], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as trainer:
        assert trainer.stdout is not None and trainer.stdout.readline() == "up\n"
        done = run(["sh", "-c", text.replace("[t]rain.py", f"[t]{name[1:]}")], tools, tmp_path, POD="ppo")
        trainer.communicate("")
    assert done.stdout == f"watch --pid {trainer.pid} --no-view --out /runs/ppo\n"


def test_dashboard_has_measures_that_are_there() -> None:
    """Each name in a query is one that the page serves, each is in a panel, and each name in braces is a label of it.

    tests/live/test_prometheus.py asks a real Prometheus all of them.
    """
    import re

    from rlhfdoctor.curves import Measure
    from rlhfdoctor.record import figures

    measures = {f"rlhfdoctor_{m.name}{'_total' if m.counts else ''}": m for m in vars(figures).values() if isinstance(m, Measure)}
    dashboard = json.loads((RECIPES / "grafana" / "rlhfdoctor.json").read_text())
    seen = set()
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            names = set(re.findall(r"rlhfdoctor_\w+", target["expr"]))
            assert names <= set(measures), target["expr"]
            labels = {"run", "node"}.union(*(measures[name].labels for name in names))
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, target
            seen |= names
    left_out = {name.removeprefix("rlhfdoctor_") for name in set(measures) - seen}
    assert left_out == {"alarms", "limit_alarm", "limit_growth_bytes_per_second", "limit_hang_seconds", "recorder_rss_bytes", "role_processes", "sample_timestamp_seconds", "shm_orphaned_bytes", "shm_unlinked_bytes"}
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])


def test_dashboard_is_what_grafana_reads() -> None:
    """Grafana's own model of a dashboard keeps all of it, but for what is the data source's and a variable's caption."""
    dashboards = pytest.importorskip("grafana_foundation_sdk.models.dashboard", reason="grafana-foundation-sdk is not installed")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    given = json.loads((RECIPES / "grafana" / "rlhfdoctor.json").read_text())
    read = json.loads(json.dumps(dashboards.Dashboard.from_json(json.loads(json.dumps(given))), cls=JSONEncoder))

    def lost(one: Any, two: Any, path: str = "") -> set[str]:
        if isinstance(one, dict):
            return {lost_one for key, value in one.items() for lost_one in (lost(value, two[key], f"{path}.{key}") if key in two else {f"{path}.{key}"})}
        if isinstance(one, list) and len(one) == len(two):
            return {lost_one for each, other in zip(one, two) for lost_one in lost(each, other, path)}
        return set() if one == two else {path}

    assert lost(given, read) == {".annotations.list.step", ".annotations.list.textFormat", ".annotations.list.titleFormat", ".templating.list.definition"}
