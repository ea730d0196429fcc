import time

import numpy as np
import ray


@ray.remote(num_cpus=1)
def reward(number):
    rng = np.random.default_rng(number)
    return float(rng.normal(size=1_000_000).mean())


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self):
        self.buffer = np.zeros(0, dtype=np.float32)

    def update(self, size):
        self.buffer = np.ones(size, dtype=np.float32)
        time.sleep(0.5)
        print(f"buffer {self.buffer.nbytes / 1e6:.0f} MB", flush=True)
        return float(self.buffer.sum())


ray.init(num_cpus=2)
trainer = Trainer.remote()
for number, size in enumerate([10_000_000, 60_000_000, 150_000_000, 60_000_000, 10_000_000, 1_000_000]):
    rewards = ray.get([reward.remote(number * 4 + i) for i in range(4)])
    total = ray.get(trainer.update.remote(size))
    print(f"step {number}: reward {np.mean(rewards):+.5f}, sum {total:.0f}", flush=True)
print("training finished")
