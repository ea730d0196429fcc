"""DeepSpeed's words for one thing, by release."""

from __future__ import annotations

import pytest

from tests.build import read_log

PREFIXES = {
    "plain": "[2024-12-21 08:52:11,104] [INFO] ",
    "ray": "(ActorModelRayActor pid=4120, ip=10.0.0.5) [2026-03-02 11:20:31,711] [INFO] ",
}
LINES = {
    "0.8.0 to 0.17.1": (
        "deepspeed.checkpoint_load",
        "[torch_checkpoint_engine.py:28:load] [Torch] Loading checkpoint from ckpt/_actor/step20/zero_pp_rank_0_mp_rank_00_optim_states.pt...",
    ),
    "since 0.17.2": (
        "deepspeed.checkpoint_load",
        "[logging.py:107:log_dist] [Rank 0] [Torch] Begin Load checkpoint from ckpt/_actor/step20/zero_pp_rank_0_mp_rank_00_optim_states.pt...",
    ),
    "most saves": (
        "deepspeed.checkpoint_save",
        "[logging.py:128:log_dist] [Rank 0] [Torch] Checkpoint global_step20 is about to be saved!",
    ),
    "saves at 0.8 and 0.17.2": (
        "deepspeed.checkpoint_save",
        "[logging.py:107:log_dist] [Rank 0] [Torch] Checkpoint global_step20 is begin to save!",
    ),
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
@pytest.mark.parametrize(("kind", "line"), LINES.values(), ids=LINES)
def test_words_of_a_checkpoint(prefix: str, kind: str, line: str) -> None:
    """runtime/checkpoint_engine/torch_checkpoint_engine.py; what says that it is over is another event or none."""
    assert [event.kind for event in read_log(prefix + line) if event.kind.startswith("deepspeed.")] == [kind]


@pytest.mark.parametrize("line", ["[Torch] Loaded checkpoint from a.pt.", "[Torch] End Load checkpoint from a.pt..."])
def test_a_load_that_is_over_is_no_load(line: str) -> None:
    assert "deepspeed.checkpoint_load" not in [event.kind for event in read_log(PREFIXES["plain"] + line)]
