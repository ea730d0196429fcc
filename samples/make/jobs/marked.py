"""A stand-in for a trainer, with marks and real memory: a driver that forks an actor.

    python marked.py STEPS KEPT ROLLOUT SAVE AT [LOAD]     all sizes in MiB

Each step: a rollout that takes ROLLOUT and gives it back, and an update that keeps KEPT for good; the
step AT saves a checkpoint that takes SAVE for a while. LOAD is taken before the first step and kept.
"""

import os
import sys
import time

from rlhfdoctor import marks

MIB = 1 << 20


def take(mib: int, seconds: float = 0.6) -> list[bytearray]:
    """Memory that is really touched, in slices, as a real phase takes it."""
    slices = []
    for _ in range(6):
        slices.append(bytearray(b"\1") * (mib * MIB // 6))
        time.sleep(seconds / 6)
    return slices


def actor(steps: int, kept: int, rollout: int, save: int, at: int, load: int) -> None:
    """The five phases of a step as far as memory sees them."""
    marks.role("actor", rank=0)
    with marks.phase("load"):
        held = [take(60), take(load, 3.0)]
    for step in range(1, steps + 1):
        marks.step(step)
        with marks.phase("rollout", step=step):
            samples = take(rollout)
            print(f"step {step}: rollout of {rollout} MiB", flush=True)
        del samples
        with marks.phase("update", step=step):
            held.append(take(kept))
        if step == at:
            with marks.phase("checkpoint", step=step):
                print("saving the checkpoint", flush=True)
                states = take(save, 2.0)
            del states
    print("done", flush=True)


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]] + [0]
    pid = os.fork()
    if pid == 0:
        actor(*numbers[:6])
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    print(f"the actor ended with {status}", flush=True)
    sys.exit(0 if status == 0 else 1)
