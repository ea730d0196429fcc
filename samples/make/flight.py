"""Flight-recorder dumps of ranks that part, and of a rank that never comes: `python flight.py` writes samples/flight-*.

Three processes on gloo with torch's flight recorder on. NCCL needs GPUs; the dump's format is the same (FlightRecorder.cpp).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import yaml

SAMPLES = Path(__file__).resolve().parent.parent
JOB = Path(__file__).parent / "jobs" / "ranks.py"
TRUTH = {
    "parted": {
        "verdict": "cause",
        "accept": ["comm-shape-mismatch"],
        "story": "In step 3 rank 1 issues an all_gather where ranks 0 and 2 issue an all_reduce. All three wait until gloo's limit.",
    },
    "absent": {
        "verdict": "undecided",
        "accept": [],
        "story": "In step 3 rank 2 waits for a judge that does not answer, and never enters the all_reduce in which ranks 0 and 1 wait. "
        "The dumps show who did not come and where it was last, not what it waited for.",
    },
}


def make(kind: str, port: int) -> None:
    folder = SAMPLES / f"flight-{kind}"
    shutil.rmtree(folder, ignore_errors=True)
    run = folder / "run"
    run.mkdir(parents=True)
    job = Path(shutil.copy(JOB, tempfile.mkdtemp(prefix="flight-")))  # no path of this machine in the sample
    environment = {**os.environ, "TORCH_FR_BUFFER_SIZE": "200"}
    with (run / "driver.log").open("wb") as log:
        ranks = [
            subprocess.Popen(
                [sys.executable, str(job), str(rank), kind, str(run), str(port)],
                stdout=log,
                stderr=log,
                env=environment,
            )
            for rank in range(3)
        ]
        for rank in ranks:
            rank.wait(timeout=120)
    truth = {"kind": "decidable" if kind == "parted" else "undecidable", "killer": "collective-timeout", **TRUTH[kind]}
    truth["made_by"] = f"samples/make/flight.py, torch {torch.__version__}"
    (folder / "truth.yaml").write_text(yaml.safe_dump(truth, sort_keys=False, width=110))


if __name__ == "__main__":
    for place, kind in enumerate(TRUTH):
        make(kind, 29640 + place)
