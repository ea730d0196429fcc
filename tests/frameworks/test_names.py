"""The settings tables against the names that the releases themselves take (names.json, from `make schemas`)."""

from __future__ import annotations

import pytest

from rlhfdoctor.settings.spell import Spelling, load_table
from tests.frameworks.schemas import load

NAMES = load()
RELEASES = [(framework, release) for framework, releases in NAMES.items() for release in releases]
FORMS = {"openrlhf": ("flag",), "verl": ("hydra",), "deepspeed": ("json",), "trl": ("yaml",), "easyr1": ("yaml",)}


EXCEPTIONS = {
    "--max_len": "parsed by early releases, too, a budget of prompt and response from 0.9.8 only",
    "ray_kwargs.ray_init.runtime_env.env_vars": "in no shipped tree: added with a leading +",
    "reward_model.rollout.gpu_memory_utilization": "the old tree still composes from 0.7.1 on, and is not read",
    "gradient_checkpointing": "a field of transformers that TRL redefines from 0.22 on",
    "use_liger_kernel": "likewise",
    "per_device_train_batch_size": "likewise, in 0.14 only",
}
"""Spelling -> why the names of a release do not settle it."""


def is_checked(row: Spelling) -> bool:
    """Whether the extracted names could hold this spelling at all."""
    if row.only is not None or row.form not in FORMS[row.framework] or row.spelled.lstrip("+") in EXCEPTIONS:
        return False
    if row.framework == "deepspeed":
        return row.spelled.startswith("zero_optimization.") and row.spelled.count(".") <= 2
    every = set().union(*NAMES[row.framework].values())
    return row.framework != "trl" or row.spelled in every  # most of TRL's settings are transformers' own


@pytest.mark.parametrize(("framework", "release"), RELEASES)
def test_tables_know_what_a_release_takes(framework: str, release: str) -> None:
    """A spelling that holds at a release is a name of it, and one that does not is none."""
    names = NAMES[framework][release]
    rows = [row for row in load_table(framework) if is_checked(row)]
    held = {row.spelled.lstrip("+") for row in rows if row.holds_at(release)}
    gone = {row.spelled.lstrip("+") for row in rows} - held
    assert (sorted(held - names), sorted(gone & names)) == ([], [])


def test_every_framework_was_read() -> None:
    """Each framework's releases are there, the tags between those that PyPI has too, and none is empty."""
    least = {"openrlhf": 100, "verl": 16, "deepspeed": 70, "trl": 44, "easyr1": 3}
    assert {framework: len(releases) >= least[framework] for framework, releases in NAMES.items()} == dict.fromkeys(
        FORMS, True
    )
    few = {"trl": 12}  # GRPOConfig began with thirteen fields of its own
    assert all(
        len(names) > few.get(framework, 40) for framework, releases in NAMES.items() for names in releases.values()
    )
