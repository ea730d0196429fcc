"""`doctor estimate` on the frameworks' own example scripts, which run: `make upstream` (python -m tests.frameworks.upstream).

Their authors know that they work, so a known trap there is a false alarm, a shortage on a usual GPU most likely too (not all were
made for 80 GiB), and a refusal tells what the reader of scripts lacks. Writes UPSTREAM.md. Needs whole clones, whose tags are read:

    RLHFDOCTOR_GIT_OPENRLHF=~/src/OpenRLHF RLHFDOCTOR_GIT_VERL=~/src/verl RLHFDOCTOR_GIT_EASYR1=~/src/EasyR1 make upstream
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rlhfdoctor.core.estimate import Machine, estimate
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.report.estimate_verdict import sentence, verdict
from tests.frameworks.registry import tagged_trees

PAGE = Path(__file__).with_name("UPSTREAM.md")
PROGRAMS = {"openrlhf": "train_ppo", "verl": "main_ppo", "easyr1": "verl.trainer.main"}
"""What a script of PPO or GRPO starts."""
_GPU = 80 << 30
_CAUSES = (
    (r"is not modelled", "trained by another backend (Megatron, VeOmni, MindSpeed)"),
    (r"no model in the files", "no command of its own (a wrapper)"),
    (r"neither the name nor a config.json", "a model that only its files tell"),
)


def scripts(framework: str) -> Iterator[tuple[str, str, str]]:
    """Release, path and text of each script that differs from those of other tags."""
    seen: set[str] = set()
    for release, root in tagged_trees(framework, "0.0.1", ["examples"]):
        for path in sorted(root.glob("examples/**/*.sh")):
            text = path.read_text(errors="replace")
            if text not in seen and PROGRAMS[framework] in text:
                seen.add(text)
                yield release, str(path.relative_to(root)), text


def main() -> None:
    """Writes the page; ends with status 1 where an example of the frameworks is called a trap."""
    lines, alarms, short = [], [], []
    for framework in PROGRAMS:
        if f"RLHFDOCTOR_GIT_{framework.upper()}" not in os.environ:
            sys.exit(f"RLHFDOCTOR_GIT_{framework.upper()}: name a clone of {framework} (see the head of this file)")
        counts: Counter[str] = Counter()
        said: Counter[str] = Counter()
        for release, path, text in scripts(framework):
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "launch.sh").write_text(text)
                try:
                    found = estimate([folder], framework=f"{framework}=={release}", machine=Machine(gpu_bytes=_GPU))
                except DoctorError as error:
                    counts[next((name for mark, name in _CAUSES if re.search(mark, str(error))), str(error))] += 1
                    continue
            counts["estimated"] += 1
            said[verdict(found)] += 1
            if verdict(found) == "over":
                short.append(f"| {framework} {release} | {path} | {sentence(found)} |")
            alarms += [f"| {framework} {release} | {path} | {h.cause} | {h.says} |" for h in found.hazards]
        refused = "; ".join(f"{count} {name}" for name, count in counts.most_common() if name != "estimated")
        lines.append(
            f"| {framework} | {counts.total()} | {counts['estimated']} | {said['fits']} | {said['tight']} | {said['over']} | {said['trap']} | {refused or 'none'} |"
        )
    head = [
        "# The frameworks' own examples",
        "",
        "Made by `make upstream`: every script of PPO or GRPO in `examples/` that differs between the tags, a GPU of 80 GiB taken for granted.",
        "",
    ]
    table = [
        "| framework | scripts | estimated | fits | too close, or only with short sequences | over | trap | refused, with the reason |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
        *lines,
        "",
    ]
    traps = [
        "Traps that the estimate names in them:",
        "",
        *(["| release | script | trap | says |", "|---|---|---|---|", *alarms] if alarms else ["none"]),
        "",
    ]
    table += [
        "Said to be over, most of them 30B and more:",
        "",
        "| release | script | says |",
        "|---|---|---|",
        *short,
        "",
    ]
    PAGE.write_text("\n".join([*head, *table, *traps]))
    sys.stdout.write(PAGE.read_text())
    sys.exit(1 if alarms else 0)


if __name__ == "__main__":
    main()
