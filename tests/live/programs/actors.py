"""Plain Ray actors: `actors.py kill` ends one by ray.kill and waits for it, in `actors.py exit` one calls sys.exit."""

from __future__ import annotations

import sys
import time

import ray

mode = sys.argv[1]
ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False)


@ray.remote
class Counter:
    """Counts, and gives up at 20 if it is told to."""

    def __init__(self) -> None:
        self.count = 0

    def step(self) -> int:
        self.count += 1
        time.sleep(0.15)
        if mode == "exit" and self.count == 20:
            sys.exit(1)
        return self.count


counters = [Counter.remote() for _ in range(2)]
for step in range(1, 40):
    if mode == "kill" and step == 20:
        ray.kill(counters[1])
    print(f"step {step}: {ray.get([counter.step.remote() for counter in counters])}", flush=True)
