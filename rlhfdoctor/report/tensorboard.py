"""Curves as event files of TensorBoard, written by tensorboardX."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from rlhfdoctor.curves import Curves
from rlhfdoctor.errors import UsageError
from rlhfdoctor.files.write import make_folder
from rlhfdoctor.i18n.message import say

_NAME = re.compile(r"[^\w-]+")


def write(recorded: Sequence[Curves], folder: Path) -> None:
    """A run of TensorBoard for each node: one value a step (or second), the worst in it.

    Raises:
        UsageError: tensorboardX is not installed.
        OSError: the folder cannot be written.
    """
    try:
        from tensorboardX.event_file_writer import (
            EventsWriter,
        )  # SummaryWriter writes in a thread, which hangs on errors
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar
    except ImportError:
        raise UsageError(
            say("TensorBoard: the package tensorboardX is missing: pip install 'rlhfdoctor[tensorboard]'")
        ) from None
    for curves in recorded:
        inner = folder / _NAME.sub("_", f"{curves.run}-{curves.node}")[:100]
        make_folder(inner)
        writer = EventsWriter(str(inner / "events"))
        for number, at_s, values in curves.by_step():
            for tag, value in values.items():
                writer.write_event(Event(wall_time=at_s, step=number, summary=scalar(tag, value)))
        writer.close()
