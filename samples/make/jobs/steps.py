import sys
import time

import numpy as np
import ray

STEPS = int(sys.argv[1])


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self):
        self.weights = np.ones(20_000_000, dtype=np.float32)

    def step(self, number):
        self.weights *= 0.99
        time.sleep(1)
        print(f"step {number}: loss {self.weights[0]:.4f}", flush=True)
        return float(self.weights[0])


ray.init()
trainer = Trainer.remote()
for number in range(STEPS):
    loss = ray.get(trainer.step.remote(number))
print(f"training finished, loss {loss:.4f}")
