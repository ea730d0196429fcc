import ctypes
import time

import ray


@ray.remote(num_cpus=1)
class Trainer:
    def step(self, number):
        print("step", number, flush=True)
        time.sleep(0.5)
        if number == 3:
            self.fused_copy()
        return number

    def fused_copy(self):
        ctypes.memset(0, 1, 4096)


ray.init(num_cpus=2)
trainer = Trainer.remote()
for number in range(6):
    ray.get(trainer.step.remote(number))
print("training finished")
