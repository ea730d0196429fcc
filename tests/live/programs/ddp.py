"""PyTorch's DistributedDataParallel on gloo, as torchrun starts it: `ddp.py straggler|save|plain OUTPUT`."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

M_MMAP_THRESHOLD = -3
"""Of glibc's malloc.h. By default the bound moves up to 32 MiB, and gradients of 10 MB then fragment the heap of their
thread: in one run a rank grew by a matrix a step, which is a leak and not the course that this program is for."""

ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 1 << 20)
mode, output = sys.argv[1:3]
dist.init_process_group("gloo", timeout=timedelta(seconds=4 if mode == "straggler" else 60))
rank = dist.get_rank()
torch.manual_seed(rank)
width = 1600 if mode == "save" else 64
model = DistributedDataParallel(nn.Sequential(*[nn.Linear(width, width) for _ in range(8)]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)


def save(step: int) -> None:
    """One copy of the weights for each of the averages that are kept, all of them at once."""
    print(f"Saving model checkpoint to {output}/checkpoint-{step}", flush=True)
    copies = []
    for _ in range(60):
        copies.append({name: value.clone() for name, value in model.module.state_dict().items()})
        time.sleep(0.2)
    torch.save(copies, f"{output}/checkpoint-{step}.pt")


for step in range(1, 400):
    if mode == "straggler" and rank == 1 and step == 20:
        time.sleep(60)  # "scores the validation set", which only this rank has
    loss = model(torch.randn(8, width)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if rank == 0:
        print(f"step {step}/400 loss {loss.item():.4f}", flush=True)
    if mode == "save" and step == 60 and rank == 0:  # flat for three times as long as the copies take
        os.makedirs(output, exist_ok=True)
        save(step)
    time.sleep(0.15)
dist.destroy_process_group()
