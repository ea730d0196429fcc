"""Curves as offline runs of Weights & Biases: written by its package, not sent until `wandb sync`."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from rlhfdoctor.curves import Curves
from rlhfdoctor.errors import UsageError
from rlhfdoctor.files.write import make_folder
from rlhfdoctor.i18n.message import say


def write(recorded: Sequence[Curves], folder: Path) -> None:
    """An offline run for each node, below FOLDER/wandb: one value a step (or second), the worst in it.

    Only the figures are in it: neither this machine's description nor its command lines, packages or git remotes.

    Raises:
        UsageError: wandb is not installed, or cannot write there.
        OSError: the folder cannot be written.
    """
    os.environ["WANDB_ERROR_REPORTING"] = "false"  # read when it is imported: reports of its errors go to its makers
    try:
        import wandb
    except ImportError:
        raise UsageError(
            say("Weights & Biases: the package wandb is missing: pip install 'rlhfdoctor[wandb]'")
        ) from None
    logging.raiseExceptions = False  # its own log of a full disk would print a traceback
    make_folder(folder)
    if not os.access(folder, os.W_OK):  # the package would take a temporary folder, and say nothing
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    for curves in recorded:
        axis = "step" if curves.has_steps else "second"
        settings = wandb.Settings(
            mode="offline",
            silent=True,
            host=curves.node,
            console="off",
            disable_code=True,
            disable_git=True,
            disable_job_creation=True,
            save_code=False,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            x_save_requirements=False,
        )
        try:
            with wandb.init(
                project="rlhfdoctor", name=f"{curves.run} ({curves.node})", dir=str(folder), settings=settings
            ) as run:
                run.define_metric("*", step_metric=axis)
                for number, at_s, values in curves.by_step():
                    run.log({**values, axis: number, "sample_timestamp_seconds": at_s})  # its own clock is that of now
        except wandb.Error as error:
            raise UsageError(say("Weights & Biases: {error}", error=str(error))) from None
        if os.statvfs(folder).f_bavail == 0:  # the package's own process writes: it drops what does not fit, unsaid
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))
