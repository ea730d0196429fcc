"""Orderly ends that training libraries announce: a signal, a time limit."""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.job.interrupted,
        r"exiting program after receiving SIG(?:TERM|INT|USR\d)",
        " [2026-03-02 10:00:01] exiting program after receiving SIGTERM.",
        when="Megatron-LM with --exit-signal-handler (megatron/training/training.py)",
    ),
    line(
        EVENT.job.interrupted,
        r"SIGTERM received, will request JIT checkpoint",
        "SIGTERM received, will request JIT checkpoint after 3.0s",
        when="transformers 5 (trainer_jit_checkpoint.py)",
    ),
    line(
        EVENT.phase.finished,
        r"exiting program (?:at iteration|after) \d{1,9}(?: minutes)?\b"
        r"|`Trainer\.fit` stopped: `max_(?:epochs|steps|time)=|\] End time of running main: ",
        "`Trainer.fit` stopped: `max_steps=400` reached.",
        when="Megatron-LM with --exit-interval or --exit-duration-in-mins; PyTorch Lightning; ms-swift",
    ),
)
