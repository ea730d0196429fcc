"""One rank of three on gloo that falls out of step, with its flight-recorder dump: `ranks.py RANK KIND FOLDER PORT`."""

import datetime
import os
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

LIMIT_S = 8


def critic_update(rank, kind):
    """The ranks meet in an all_reduce; rank 1 has an uneven last batch, for which somebody wrote an all_gather."""
    if kind == "parted" and rank == 1:
        dist.all_gather([torch.zeros(64) for _ in range(3)], torch.ones(64))
    else:
        dist.all_reduce(torch.ones(64))


def score_responses(rank, kind):
    """Rank 2 waits for a judge that does not answer."""
    if kind == "absent" and rank == 2:
        time.sleep(2 * LIMIT_S)


def main(rank, kind, folder, port):
    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=rank,
        world_size=3,
        timeout=datetime.timedelta(seconds=LIMIT_S),
    )

    def dump():
        print(f"[rank{rank}]: writing the flight recorder", flush=True)
        Path(folder, f"nccl_trace_rank_{rank}").write_bytes(_dump_fr_trace())

    for step in (1, 2, 3):
        print(f"[rank{rank}]: step {step} phase rollout", flush=True)
        dist.all_reduce(torch.ones(16))
        if step == 3:
            threading.Timer(LIMIT_S + 1, dump).start()  # as torch's watchdog does for NCCL at a timeout
            score_responses(rank, kind)
            critic_update(rank, kind)


if __name__ == "__main__":
    rank = int(sys.argv[1])
    try:
        main(rank, *sys.argv[2:])
    finally:
        import traceback

        if sys.exc_info()[0]:
            for thread in threading.enumerate()[1:]:
                thread.join(30)  # the dump takes its time
            print(
                "".join(f"[rank{rank}]: {line}\n" for line in traceback.format_exc().splitlines()),
                end="",
                file=sys.stderr,
                flush=True,
            )
            os._exit(1)
