import time

import ray

MB = 1 << 20

ray.init(num_cpus=3, object_store_memory=80 * MB, include_dashboard=False)


@ray.remote
class ActorModelRayActor:
    def __init__(self):
        self.kept, self.due = [], time.monotonic()

    def generate(self):
        for _ in range(8):
            self.kept.append(bytearray(8 * MB))
            self.due += 0.25
            time.sleep(max(0.0, self.due - time.monotonic()))


@ray.remote
class CriticModelRayActor:
    def hold(self):
        self.kept = bytearray(100 * MB)


critic = CriticModelRayActor.remote()
ray.get(critic.hold.remote())
actor = ActorModelRayActor.remote()
for step in range(1000):
    ray.get(actor.generate.remote())
    print(f"step:{step} - actor/pg_loss:0.1 - reward/mean:0.5", flush=True)
