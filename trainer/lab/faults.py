"""What users' own code does wrong: tasks, reward functions, callbacks for the scenarios."""

from __future__ import annotations

import os
import random
import string
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import shared_memory
from typing import Any

from trainer.config import Config
from trainer.data import CLASSES, share_in_class

MIB = 1 << 20
_kept: list[Any] = []


# --- tasks -------------------------------------------------------------------------------------


def longer_and_longer(config: Config) -> Iterator[tuple[str, str]]:
    """Prompts up to the whole `max_prompt_length`; how long they are varies."""
    chosen = random.Random(config.train.seed)
    for _ in range(config.data.num_prompts):
        name = chosen.choice(list(CLASSES))
        length = chosen.randrange(config.data.max_prompt_length // 8, config.data.max_prompt_length)
        yield "".join(chosen.choices(string.ascii_lowercase, k=length)) + f" {name}: ", name


class EachItsOwn(Sequence[tuple[str, str]]):
    """A data set that is read at the first question: every worker of a data loader has a table of its own, 150 MiB."""

    def __init__(self, config: Config) -> None:
        self.count = config.data.num_prompts
        self.table: list[bytes] = []

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[str, str]:  # type: ignore[override]
        if not self.table:
            self.table = [os.urandom(MIB) for _ in range(150)]
        names = list(CLASSES)
        name = names[self.table[index % len(self.table)][index % MIB] % len(names)]
        return f"{index:06d} {name}: ", name


# --- rewards -----------------------------------------------------------------------------------


def hoarding(response: str, answer: str, length: int) -> float:
    """A verifier that caches all it has ever seen, with its parse trees: 48 MiB a call."""
    _kept.append(os.urandom(MIB) * 48)
    return share_in_class(response, answer, length)


def hanging(response: str, answer: str, length: int) -> float:
    """A judge that takes half a minute for one answer on one rank."""
    _kept.append(None)
    if len(_kept) == 5 and os.environ.get("RANK") == "0":
        time.sleep(30)
    return share_in_class(response, answer, length)


def opening(response: str, answer: str, length: int) -> float:
    """A sandbox that leaves the files of each call open."""
    _kept.extend(tempfile.TemporaryFile() for _ in range(40))  # noqa: SIM115 - that is the fault
    return share_in_class(response, answer, length)


def mistaken(response: str, answer: str, length: int) -> float:
    """A bug: the third step has an unexpected key."""
    _kept.append(None)
    return share_in_class(response, answer if len(_kept) < 6 else f"{answer}s", length)


def segments(response: str, answer: str, length: int) -> float:
    """Hands images over in shared memory, and forgets to unlink the segments."""
    segment = shared_memory.SharedMemory(create=True, size=2 * MIB)
    segment.buf[:] = b"\1" * len(segment.buf)
    _kept.append(segment)
    return share_in_class(response, answer, length)


def picture(response: str, answer: str, length: int) -> float:
    """Hands a picture of 96 MiB to a viewer in shared memory, and cleans up behind it."""
    segment = shared_memory.SharedMemory(create=True, size=96 * MIB)
    segment.buf[:] = bytes(len(segment.buf))
    segment.close()
    segment.unlink()
    return share_in_class(response, answer, length)


# --- callbacks ---------------------------------------------------------------------------------


def keep_everything(step: int, batch: dict[str, Any], metrics: dict[str, float]) -> None:
    """A logger that keeps each step's tables, with the texts: 60 MiB a step, and never lets go."""
    _kept.append(os.urandom(MIB) * 60)


def keep_objects(step: int, batch: dict[str, Any], metrics: dict[str, float]) -> None:
    """Puts each step's logits into the object store for later, 48 MiB a step, and keeps the references."""
    import numpy
    import ray

    _kept.append(ray.put(numpy.ones(48 * MIB, dtype=numpy.uint8)))


def come_and_go(step: int, batch: dict[str, Any], metrics: dict[str, float]) -> None:
    """An evaluation that takes 250 MiB for a moment and gives them back."""
    held = [bytearray(b"\1") * (50 * MIB) for _ in range(5)]
    time.sleep(0.6)
    del held
