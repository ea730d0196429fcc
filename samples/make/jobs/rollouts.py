import time

import numpy as np
import ray

MB = 1 << 20

# Spilling is off: the disk is slow and shared.
ray.init(
    num_cpus=2,
    object_store_memory=100 * MB,
    _system_config={"automatic_object_spilling_enabled": False},
)


@ray.remote(num_cpus=1)
class Trainer:
    def consume(self, batches):
        return sum(ray.get(batch).nbytes for batch in batches)


trainer = Trainer.remote()
rollouts = []
for number in range(12):
    rollouts.append(ray.put(np.zeros(20 * MB, dtype=np.uint8)))
    print(f"rollout batch {number}: {len(rollouts) * 20} MB held", flush=True)
    time.sleep(0.2)
print("tokens", ray.get(trainer.consume.remote(rollouts)))
