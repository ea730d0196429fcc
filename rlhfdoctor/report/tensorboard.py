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
        from tensorboardX import SummaryWriter
    except ImportError:
        raise UsageError(
            say("TensorBoard: the package tensorboardX is missing: pip install 'rlhfdoctor[tensorboard]'")
        ) from None
    for curves in recorded:
        inner = folder / _NAME.sub("_", f"{curves.run}-{curves.node}")[:100]
        make_folder(inner)
        with SummaryWriter(str(inner), write_to_disk=True) as writer:
            for number, at_s, values in curves.by_step():
                for tag, value in values.items():
                    writer.add_scalar(tag, value, number, walltime=at_s)
