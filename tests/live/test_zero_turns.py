"""pipeline_loading_checkpoint on real DeepSpeed ranks (gloo): they read their shards one after the other, and not where every LOCAL_RANK is 0."""

from __future__ import annotations

import itertools
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepspeed")

from trainer.lab import place

RANKS = 3
RANK = """
import datetime, json, os, sys, time
import deepspeed, torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

folder, rank, resumes, in_turn = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "resume", sys.argv[4] == "in-turn"
deepspeed.init_distributed("gloo", timeout=datetime.timedelta(seconds=20))
zero = {"stage": 3, "offload_optimizer": {"device": "cpu"}, "pipeline_loading_checkpoint": in_turn}
config = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": zero}
torch.manual_seed(0)
with deepspeed.zero.Init(config_dict_or_path=config):
    model = torch.nn.Linear(64, 64)
engine, *_ = deepspeed.initialize(model=model, optimizer=DeepSpeedCPUAdam(model.parameters(), lr=1e-3), config=config)


def end(**line):
    print(json.dumps(line), flush=True)
    torch.distributed.barrier()
    os._exit(0)  # the threads of gloo may still run, and then end the interpreter badly


def step():
    loss = engine(torch.full((1, 64), rank + 1.0, dtype=torch.bfloat16)).float().pow(2).mean()
    engine.backward(loss)
    engine.step()
    return loss.item()


if not resumes:
    step()
    engine.save_checkpoint(folder, tag="saved")
    step()
    end(loss=step())
load, send, at = engine.checkpoint_engine.load, deepspeed.comm.send, []


def slow(path, *rest, **more):
    if "optim_states" not in path:
        return load(path, *rest, **more)
    at.append(time.time())
    time.sleep(2 * (RANKS - 1 - rank))  # who does not wait for the first rank is before it
    found = load(path, *rest, **more)
    at.append(time.time())
    return found


def told(tensor, dst, *rest, **more):
    print(json.dumps({"sends_to": dst}), flush=True)
    return send(tensor, dst, *rest, **more)


engine.checkpoint_engine.load, deepspeed.comm.send = slow, told
engine.load_checkpoint(folder, tag="saved")
step()
end(at=at, loss=step())
""".replace("RANKS", str(RANKS))


class Died(Exception):
    """Ranks ended badly: each one's output, and the end of its errors."""

    @property
    def ranks(self) -> list[tuple[str, str]]:
        return list(self.args[0])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float]]:
    """A checkpoint of all ranks, and their losses two steps behind it."""
    place.warm()
    folder = tmp_path_factory.mktemp("turns")
    return folder, [line["loss"] for line in run(folder, "save", "at-once")]


def run(folder: Path, *words: str, launched: bool = True) -> list[dict[str, Any]]:
    """What the ranks print at their end, in order."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(folder), str(rank), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                **place.NOT_COMPILED,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank if launched else 0),
                "WORLD_SIZE": str(RANKS),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "DS_ACCELERATOR": "cpu",
                "TORCH_EXTENSIONS_DIR": str(place.extensions()),
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            },
        )
        for rank in range(RANKS)
    ]
    try:
        ends = [process.communicate(timeout=150) for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise Died([(output, errors[-3000:]) for output, errors in ends])
    return [json.loads(output.splitlines()[-1]) for output, _ in ends]


@pytest.mark.parametrize("way", ["at-once", "in-turn"])
def test_ranks_read(way: str, saved: tuple[Path, list[float]]) -> None:
    """Each rank begins when the one before it has read, with the setting only; all go on where they were."""
    folder, losses = saved
    found = run(folder, "resume", way)
    waits = [second["at"][0] >= first["at"][1] for first, second in itertools.pairwise(found)]
    assert waits == [way == "in-turn"] * (RANKS - 1), found
    assert [rank["loss"] for rank in found] == losses


def test_ranks_without_a_local_rank_of_their_own_do_not_get_through(saved: tuple[Path, list[float]]) -> None:
    """As the Ray actors of OpenRLHF: each sends to the next one, nobody listens, and the last one waits for a rank that does not exist.

    How that ends is gloo's own: after 20 s with a timeout, a closed connection or a segfault.
    """
    with pytest.raises(Died) as died:
        run(saved[0], "resume", "in-turn", launched=False)
    told = [[line for line in output.splitlines() if line.startswith("{")] for output, _ in died.value.ranks]
    assert told == [[json.dumps({"sends_to": rank + 1})] for rank in range(RANKS)], died.value
