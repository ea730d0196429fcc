import time

import numpy as np
import ray

LAYERS = 40
LAYER_PARAMS = 6_000_000  # 96 MB a layer: fp32 master weights, gradients and two Adam moments


@ray.remote(num_cpus=1)
class Trainer:
    def __init__(self):
        self.states = {}

    def setup(self):
        for layer in range(LAYERS):
            self.states[layer] = np.ones((4, LAYER_PARAMS), dtype=np.float32)
            done = sum(state.nbytes for state in self.states.values()) / 1e9
            print(f"layer {layer + 1}/{LAYERS}: optimizer states ready, {done:.2f} GB", flush=True)
            time.sleep(0.1)

    def step(self, number):
        return float(self.states[number % LAYERS][0, 0])


ray.init(num_cpus=2)
trainer = Trainer.remote()
ray.get(trainer.setup.remote())
for number in range(10):
    print("step", number, "loss", ray.get(trainer.step.remote(number)), flush=True)
print("training finished")
