"""lab-*: what the incident lab's runs left: trace, logs and the user's configuration, cut to size, with the lab's truth.

    python -m trainer.lab run --all --keep /tmp/lab        # some 25 minutes
    python samples/make/lab.py /tmp/lab [NAME]...

A sample is taken as it is only if the doctor agrees with the truth on the cut copy as well.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import session
import yaml

from rlhfdoctor import analyze
from trainer.lab.scenario import Scenario, load_all

KEPT = ("000001.trace", "run.json", "versions.txt", "logs")
CONFIG = ("train.yaml", "ds.json", "launch.sh")
LIMIT_BYTES = 400_000
NOISE = re.compile(r"FutureWarning|return func\(\*args, \*\*kwargs\)|\[state-dump\]")


def take(scenario: Scenario, kept: Path) -> int:
    """Writes samples/lab-NAME anew from the folder that the lab kept; its bytes."""
    name = f"lab-{scenario.name}"
    target = session.SAMPLES / name / "run"
    shutil.rmtree(target.parent, ignore_errors=True)
    target.mkdir(parents=True)
    for part in KEPT:
        source = kept / "run" / part
        if source.is_dir():
            shutil.copytree(source, target / part)
        elif source.exists():
            shutil.copy(source, target / part)
    for part in CONFIG:
        shutil.copy(kept / "config" / part, target / part)
    for log in [path for path in target.rglob("*") if path.is_file() and path.suffix not in (".trace", ".json", ".yaml", ".sh")]:
        lines = [line for line in log.read_text(errors="replace").splitlines(keepends=True) if not NOISE.search(line)]
        text = session.cut(clean("".join(lines)))
        log.write_text(text) if text else log.unlink()
    facts = json.loads((target / "run.json").read_text())
    facts |= {"argv": ["bash", "launch.sh"], "cwd": "/workspace", "environment": {}}
    (target / "run.json").write_text(json.dumps(facts, indent=1))
    truth = {key: scenario.truth.get(key) for key in ("verdict", "killer", "accept")}
    truth["killer"] = (scenario.truth.get("killers") or [truth["killer"]])[0]
    session.write_truth(name, {"kind": "decidable", **truth, "accept": truth["accept"] or [], "story": scenario.story})
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())


def clean(text: str) -> str:
    """The folders and addresses of this machine do not belong into a sample."""
    for pattern, replacement in (
        (re.escape(str(session.SAMPLES.parent)), "/workspace/rlhfdoctor"), (re.escape(sys.prefix), "/opt/venv"),
        (re.escape(sys.base_prefix), "/usr"), (r"/tmp/lab-\w+", "/tmp/ray"), (r"/tmp/[\w/-]+/config", "/workspace"), (r"\x1b\[\d+m", ""),
    ):  # fmt: skip
        text = re.sub(pattern, replacement, text)
    for pattern, replacement in session._scrubbing(Path("/tmp/lab"))[4:]:
        text = pattern.sub(replacement, text)
    return text


def main() -> None:
    kept, names = Path(sys.argv[1]), sys.argv[2:]
    for scenario in load_all():
        if scenario.gpu or (names and scenario.name not in names) or not (kept / scenario.name / "run").exists():
            continue
        size = take(scenario, kept / scenario.name)
        folder = session.SAMPLES / f"lab-{scenario.name}"
        truth = yaml.safe_load((folder / "truth.yaml").read_text())
        found = analyze([str(folder / "run")])
        first = found.best.cause if found.best else None
        right = found.verdict == truth["verdict"] and (truth["verdict"] != "cause" or first in truth["accept"])
        print(f"{folder.name}: {size} bytes, {found.verdict} {first or ''}{'' if right else '   NOT AS THE TRUTH SAYS'}")
        if size > LIMIT_BYTES:
            print(f"  {size} bytes are more than a sample should have")


if __name__ == "__main__":
    main()
