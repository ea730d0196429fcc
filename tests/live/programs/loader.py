"""A DataLoader with workers: `loader.py MODE`.

cache    each worker keeps what it decoded
batches  the images become larger
shared   what was decoded is kept in shared memory
"""

from __future__ import annotations

import sys
import time
from multiprocessing.shared_memory import SharedMemory

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

mode = sys.argv[1]


class Images(Dataset[torch.Tensor]):
    """Pictures that are made up where others decode them."""

    def __init__(self) -> None:
        self.decoded: list[torch.Tensor] = []
        self.shared: list[SharedMemory] = []

    def __len__(self) -> int:
        return 4000

    def __getitem__(self, index: int) -> torch.Tensor:
        if mode == "cache":
            self.decoded.append(torch.full((3, 1024, 1024), float(index % 7)))  # each worker has a list of its own
            time.sleep(0.05)
            return self.decoded[-1][:, :8, :8].clone()
        if mode == "shared" and index >= 160:
            self.shared.append(SharedMemory(create=True, size=3 << 20))
            torch.frombuffer(self.shared[-1].buf, dtype=torch.uint8).fill_(index % 7)
        side = 16 if index < 160 or mode == "shared" else 1024
        time.sleep(0.05)
        return torch.full((3, side, side), float(index % 7))


model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step, batch in enumerate(DataLoader(Images(), batch_size=4, num_workers=2), start=1):
    loss = model(batch.mean(dim=(2, 3))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}", flush=True)
