"""lab-*: what the incident lab's runs left: trace, logs and the user's configuration, cut to size, with the lab's truth.

    python -m trainer.lab run --all --keep /tmp/lab        # some 25 minutes
    python samples/make/lab.py /tmp/lab [NAME]...

A sample is taken only if the doctor agrees with the truth on the cut copy as well, and if it is small enough; else the old one stays.
"""

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

import session

from rlhfdoctor import analyze
from trainer.lab.scenario import Scenario, load_all

KEPT = ("000001.trace", "run.json", "versions.txt", "logs")
CONFIG = ("train.yaml", "ds.json", "launch.sh")
LIMIT_BYTES = 400_000
NOISE = re.compile(r"FutureWarning|return func\(\*args, \*\*kwargs\)|\[state-dump\]")


CURED = ("pinned-start",)
"""Scenarios whose second run, with the doctor's patch, becomes a sample, too: lab-NAME-cured."""


def take(kept: Path, folder: Path, run: str = "run", config: str = "config") -> None:
    """Fills `folder` with a sample of what the lab kept of a run."""
    target = folder / "run"
    target.mkdir(parents=True)
    for part in KEPT:
        source = kept / run / part
        if source.is_dir():
            shutil.copytree(source, target / part)
        elif source.exists():
            shutil.copy(source, target / part)
    configuration = target / "config"
    configuration.mkdir()
    for part in CONFIG:
        shutil.copy(kept / config / part, configuration / part)
    for log in [
        path for path in target.rglob("*") if path.is_file() and path.suffix not in (".trace", ".json", ".yaml", ".sh")
    ]:
        lines = [line for line in log.read_text(errors="replace").splitlines(keepends=True) if not NOISE.search(line)]
        text = session.cut(clean("".join(lines)))
        log.write_text(text) if text else log.unlink()
    facts = json.loads((target / "run.json").read_text())
    facts |= {"argv": ["bash", "launch.sh"], "cwd": "/workspace", "environment": {}}
    (target / "run.json").write_text(json.dumps(facts, indent=1))


def faults_of(scenario: Scenario, folder: Path) -> list[str]:
    """Why the folder is no good sample; the doctor must agree with the truth on the cut copy as well."""
    found = analyze([str(folder / "run")])
    first = found.best.cause if found.best else None
    faults = []
    if found.verdict != scenario.truth["verdict"] or (
        found.verdict == "cause" and first not in scenario.truth["accept"]
    ):
        faults.append(f"the doctor says {found.verdict} {first}")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    if size > LIMIT_BYTES:
        faults.append(f"{size} bytes are too many")
    return faults


def clean(text: str) -> str:
    """The folders and addresses of this machine do not belong into a sample."""
    for pattern, replacement in (
        (re.escape(str(session.SAMPLES.parent)), "/workspace/rlhfdoctor"),
        (re.escape(sys.prefix), "/opt/venv"),
        (re.escape(sys.base_prefix), "/usr"),
        (r"/tmp/lab-\w+", "/tmp/ray"),
        (r"/tmp/[\w/-]+/config", "/workspace"),
        (r"\x1b\[\d+m", ""),
    ):
        text = re.sub(pattern, replacement, text)
    for pattern, replacement in session._scrubbing(Path("/tmp/lab"))[4:]:
        text = pattern.sub(replacement, text)
    return text


def main() -> None:
    kept, names = Path(sys.argv[1]), sys.argv[2:]
    failed = False
    for scenario in load_all():
        if scenario.gpu or (names and scenario.name not in names) or not (kept / scenario.name / "run").exists():
            continue
        with tempfile.TemporaryDirectory() as scratch:
            take(kept / scenario.name, Path(scratch) / "sample")
            faults = faults_of(scenario, Path(scratch) / "sample")
            name = f"lab-{scenario.name}"
            print(f"{name}: {'; '.join(faults) or 'taken'}")
            failed = failed or bool(faults)
            if faults:
                continue
            shutil.rmtree(session.SAMPLES / name, ignore_errors=True)
            shutil.copytree(Path(scratch) / "sample", session.SAMPLES / name)
        truth = scenario.truth
        killer = (truth.get("killers") or [truth["killer"]])[0]
        session.write_truth(
            name,
            {
                "kind": "decidable",
                "verdict": truth["verdict"],
                "killer": killer,
                "accept": truth.get("accept", []),
                "story": scenario.story,
            },
        )
        if scenario.name in CURED:
            failed |= not take_cured(scenario, kept / scenario.name)
    sys.exit(failed)


def take_cured(scenario: Scenario, kept: Path) -> bool:
    """The second run, with the configuration that the doctor patched; taken if it went well and the doctor sees that."""
    name = f"lab-{scenario.name}-cured"
    with tempfile.TemporaryDirectory() as scratch:
        take(kept, Path(scratch) / "sample", "second", "patched")
        well = (
            json.loads((kept / "outcome.json").read_text())["cured"]
            and analyze([f"{scratch}/sample/run"]).verdict == "healthy"
        )
        print(f"{name}: {'taken' if well else 'no cure'}")
        if well:
            shutil.rmtree(session.SAMPLES / name, ignore_errors=True)
            shutil.copytree(Path(scratch) / "sample", session.SAMPLES / name)
            session.write_truth(
                name,
                {
                    "kind": "decidable",
                    "verdict": "healthy",
                    "killer": None,
                    "accept": [],
                    "story": f"The run of lab-{scenario.name} with the patch that the doctor wrote.",
                },
            )
    return well


if __name__ == "__main__":
    main()
