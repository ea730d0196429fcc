"""Logs of machines whose language is Chinese: stamps of dmesg and date, `free`, full-width punctuation around what counts."""

from __future__ import annotations

import pytest

from tests.build import read_kind, read_log

KILL = "[六 11月 21 16:27:36 2026] Memory cgroup out of memory: Killed process 28676 (ray::ActorModel) total-vm:10095760kB, anon-rss:1121516kB, file-rss:140076kB, shmem-rss:802816kB, UID:0"
FREE = "              total        used        free      shared  buff/cache   available\n内存：       1.0Ti       537Gi        12Gi       3.1Gi       458Gi       430Gi\n交换：          0B          0B          0B\n"


@pytest.mark.parametrize("engine", ["hyperscan", "re"])
def test_kernel_with_a_local_stamp(engine: str) -> None:
    """The kill is read, with its time."""
    (event,) = [event for event in read_log(KILL + "\n", "dmesg.txt", engine=engine) if event.kind == "kernel.killed"]
    assert (event.time, event.fields["pid"]) == (1795278456.0, 28676)


@pytest.mark.parametrize("engine", ["hyperscan", "re"])
def test_free(engine: str) -> None:
    """The row of memory, not that of swap."""
    found = [event for event in read_log(FREE, "free.txt", engine=engine) if event.kind == "host.free"]
    assert [(event.fields["total_text"], event.fields["available_text"]) for event in found] == [("1.0Ti", "430Gi")]


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (
            "【训练】显存不足：torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.00 GiB is free.",
            "torch.cuda_oom",
        ),
        ("第 3 步，保存检查点：OSError: [Errno 28] No space left on device", "host.no_space"),
    ],
    ids=["gpu", "disk"],
)
def test_full_width_punctuation_around_it(line: str, kind: str) -> None:
    """What a program says in Chinese before an error does not hide it."""
    kinds = {event.kind for event in read_log(line + "\n", "train.log")}
    assert kind in kinds, kinds


def test_stamp_of_date() -> None:
    """A launch script that prints `date` gives the time of the lines behind it."""
    (event,) = read_kind(
        "2026年 11月 21日 星期六 16:27:36 CST Killed process 4711 (python), UID 0\nMemory cgroup out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0\n",
        "kernel.killed",
    )
    assert event.fields["pid"] == 4711
