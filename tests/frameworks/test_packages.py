"""The validators take what each real release takes, and refuse what it refuses.

Releases are downloaded on first use (about 20 MB in all, 1-2 s each, DeepSpeed 5-10 s); without a
registry these tests are skipped with the reason (conftest.py). Warm 25 s, cold 95 s on two cores.
"""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from . import registry
from .openrlhf_parser import describe, read_parser, rebuild
from .packages import (
    Unavailable,
    deepspeed_accepts,
    fetch,
    openrlhf_accepts,
    trl_fields,
    verl_accepts,
)

pytestmark = pytest.mark.network
VERL = ("0.2", "0.4.1", "0.5.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.1")
OPENRLHF_PLAIN = ("0.3.6.post1", "0.3.8", "0.5.3", "0.5.4", "0.9.7", "0.9.10")
OPENRLHF_DOTTED = ("0.10.2", "0.11.2")
DEEPSPEED = ("0.13.5", "0.16.9", "0.18.3", "0.19.4", "0.19.8")

CRITIC_OLD = "critic.model.fsdp_config.param_offload=True"
CRITIC_NEW = "critic.fsdp.param_offload=True"
BUCKET_OLD = "actor_rollout_ref.rollout.update_weights_bucket_megabytes=256"
BUCKET_NEW = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=256"
REF_DTYPE = "actor_rollout_ref.ref.fsdp_config.model_dtype=bfloat16"
SWAP_SPACE = "actor_rollout_ref.rollout.engine_kwargs.vllm.swap_space=4"
RUNTIME_ENV = "ray_kwargs.ray_init.runtime_env.env_vars.NCCL_DEBUG=INFO"

IMPORT_WHOLE_DEEPSPEED = """
import json, sys
sys.path.insert(0, sys.argv[1])
from deepspeed.runtime.zero.config import get_zero_config
for config in json.load(sys.stdin):
    try:
        get_zero_config(config)
        print("accepted")
    except ValueError:
        print("refused")
"""


def offload(stage: int, **fields: object) -> dict[str, object]:
    """Make a ds_config with optimizer offload to the CPU."""
    optimizer = {"device": "cpu", **fields}
    return {"zero_optimization": {"stage": stage, "offload_optimizer": optimizer}}


@pytest.mark.parametrize("version", VERL)
def test_verl_takes_a_key_of_its_own(version: str) -> None:
    """A key that every release has composes."""
    overrides = ["actor_rollout_ref.rollout.gpu_memory_utilization=0.4", "data.train_batch_size=64"]
    assert verl_accepts(version, overrides) is None


@pytest.mark.parametrize("version", VERL)
def test_verl_refuses_an_unknown_key(version: str) -> None:
    """The composed tree is closed: a misspelt key is an error that names it."""
    error = verl_accepts(version, ["actor_rollout_ref.rollout.gpu_memory_utilisation=0.4"])
    assert error is not None
    assert "gpu_memory_utilisation" in error


@pytest.mark.parametrize(
    ("version", "override"),
    [
        ("0.7.1", CRITIC_OLD),
        ("0.8.0", CRITIC_NEW),
        ("0.7.0", BUCKET_OLD),
        ("0.7.1", BUCKET_NEW),
        ("0.6.1", REF_DTYPE),
        ("0.5.0", SWAP_SPACE),
        ("0.6.1", f"+{SWAP_SPACE}"),
        ("0.6.1", f"+{RUNTIME_ENV}"),
        ("0.5.0", "ray_init.num_cpus=8"),
        ("0.6.1", "ray_kwargs.ray_init.num_cpus=8"),
        ("0.9.1", "reward_model.enable=True"),  # the old tree is kept beside reward.reward_model
    ],
)
def test_verl_takes_the_spelling_of_the_release(version: str, override: str) -> None:
    """On its side of a rename, each spelling composes."""
    assert verl_accepts(version, [override]) is None


@pytest.mark.parametrize(
    ("version", "override"),
    [
        ("0.7.1", CRITIC_NEW),
        ("0.8.0", CRITIC_OLD),
        ("0.7.0", BUCKET_NEW),
        ("0.7.1", BUCKET_OLD),
        ("0.5.0", REF_DTYPE),
        ("0.6.1", SWAP_SPACE),
        ("0.6.1", RUNTIME_ENV),
        ("0.6.1", "ray_init.num_cpus=8"),
        ("0.5.0", "ray_kwargs.ray_init.num_cpus=8"),
    ],
)
def test_verl_refuses_the_spelling_of_another_release(version: str, override: str) -> None:
    """Beyond a rename, or without the `+` that a new key needs, Hydra cannot override."""
    error = verl_accepts(version, [override])
    assert error is not None
    assert "Could not override" in error


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("trainer.total_epochs", "Error parsing override"),
        ("trainer.total_epochs=${trainer.no_such_key}", "no_such_key"),
    ],
)
def test_verl_refuses_what_cannot_be_read(override: str, words: str) -> None:
    """An override without `=`, and a reference to no key, are reported, not raised."""
    error = verl_accepts("0.9.1", [override])
    assert error is not None
    assert words in error


@pytest.mark.parametrize("version", OPENRLHF_PLAIN)
def test_openrlhf_takes_plain_flags_before_0_10_2(version: str) -> None:
    """Underscore names parse in every release before the renaming."""
    argv = ["--zero_stage", "3", "--adam_offload", "--micro_train_batch_size", "1"]
    assert openrlhf_accepts(version, "train_ppo_ray", argv) is None


@pytest.mark.parametrize("version", OPENRLHF_PLAIN)
def test_openrlhf_refuses_dotted_flags_before_0_10_2(version: str) -> None:
    """Dotted names are unknown before 0.10.2."""
    error = openrlhf_accepts(version, "train_ppo_ray", ["--ds.zero_stage", "3"])
    assert error == "unrecognized arguments: --ds.zero_stage 3"


@pytest.mark.parametrize("version", OPENRLHF_DOTTED)
def test_openrlhf_takes_dotted_flags_from_0_10_2(version: str) -> None:
    """Dotted names parse, those that the script makes in a loop over the roles included."""
    argv = ["--ds.zero_stage", "3", "--ds.adam_offload", "--critic.adam.lr", "9e-6"]
    assert openrlhf_accepts(version, "train_ppo_ray", argv) is None


@pytest.mark.parametrize("version", OPENRLHF_DOTTED)
def test_openrlhf_refuses_plain_flags_from_0_10_2(version: str) -> None:
    """The old names are gone without an alias."""
    error = openrlhf_accepts(version, "train_ppo_ray", ["--zero_stage", "3"])
    assert error == "unrecognized arguments: --zero_stage 3"


@pytest.mark.parametrize("version", OPENRLHF_PLAIN + OPENRLHF_DOTTED)
@pytest.mark.parametrize("script", ["train_ppo_ray", "train_sft", "train_rm", "train_dpo"])
def test_openrlhf_parser_is_read_from_every_training_script(version: str, script: str) -> None:
    """No flag is required, so each script's whole parser takes an empty command line."""
    assert openrlhf_accepts(version, script, []) is None


@pytest.mark.parametrize(
    ("version", "script", "argv", "error"),
    [
        ("0.10.2", "train_ppo_ray", "--ds.zero_stage two", "invalid int value: 'two'"),
        ("0.10.2", "train_ppo_ray", "--ds.param_dtype int8", "invalid choice: 'int8'"),
        ("0.10.2", "train_ppo_ray", "--ds.zero_stage", "expected one argument"),
        ("0.10.2", "train_sft", "--actor.gradient_checkpointing_enable", "unrecognized"),
        ("0.9.7", "train_ppo_ray", "--max_new_tokens 512", "unrecognized"),
        ("0.9.10", "train_ppo_ray", "--prompt_max_len 512", "unrecognized"),
        ("0.9.10", "train_ppo", "", "has no script openrlhf.cli.train_ppo"),
    ],
)
def test_openrlhf_refuses_with_argparse_words(version: str, script: str, argv: str, error: str) -> None:
    """Wrong types, choices, scripts and foreign names come back in argparse's words."""
    answer = openrlhf_accepts(version, script, argv.split())
    assert answer is not None
    assert error in answer


@pytest.mark.parametrize("version", DEEPSPEED)
def test_deepspeed_takes_offload_without_pinning(version: str) -> None:
    """The usual offload block with pin_memory off is valid in every release and stage."""
    config = {**offload(2, pin_memory=False), "bf16": {"enabled": True}, "gradient_clipping": 1.0}
    assert deepspeed_accepts(version, config) is None


@pytest.mark.parametrize("version", DEEPSPEED)
def test_deepspeed_takes_auto(version: str) -> None:
    """A value "auto" stands for the default, as in Hugging Face's files."""
    config: dict[str, object] = {"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}
    assert deepspeed_accepts(version, config) is None


@pytest.mark.parametrize("version", DEEPSPEED)
@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"zero_optimization": {"stage": 2, "pin_memory": False}}, "pin_memory"),
        (offload(3, pinned_memory=False), "pinned_memory"),
        ({"zero_optimisation": {"stage": 2}}, "zero_optimisation"),
    ],
    ids=["zero_optimization", "offload_optimizer", "top"],
)
def test_deepspeed_refuses_unknown_keys(version: str, config: dict[str, object], key: str) -> None:
    """A misplaced or misspelt key is an error that names it, at each of three levels."""
    error = deepspeed_accepts(version, config)
    assert error is not None
    assert key in error


@pytest.mark.parametrize("version", DEEPSPEED)
def test_deepspeed_takes_partial_offload_at_stage_3(version: str) -> None:
    """`ratio` below 1 is valid with ZeRO-3."""
    assert deepspeed_accepts(version, offload(3, ratio=0.5)) is None


def test_deepspeed_0_13_takes_partial_offload_at_any_stage() -> None:
    """Up to 0.14.5 the check reads an attribute of a dict and never fires: a silent no-op."""
    assert deepspeed_accepts("0.13.5", offload(2, ratio=0.5)) is None


@pytest.mark.parametrize("version", DEEPSPEED[1:])
def test_deepspeed_refuses_partial_offload_below_stage_3(version: str) -> None:
    """`ratio` below 1 is refused with ZeRO-2, from 0.15.0 on."""
    error = deepspeed_accepts(version, offload(2, ratio=0.5))
    assert error is not None
    assert "Partial offloading only supported for ZeRO Stage 3" in error


@pytest.mark.parametrize(
    ("version", "config"),
    [
        ("0.18.3", {"zero_optimization": {"stage": 3, "stage3_allgather_sequential": True}}),
        ("0.19.8", {"zero_optimization": {"stage": 3, "mics_shard_size": 8}}),
        ("0.19.8", {"amp": {"enabled": True}}),
        ("0.18.3", {"bf16": {"enabled": True, "master_weights": False}}),
        ("0.19.8", {"zero_optimization": {"stage": 4}}),
    ],
)
def test_deepspeed_refuses_keys_of_other_releases(version: str, config: dict[str, object]) -> None:
    """Keys that are still to come, or removed since, are refused, and so is a stage too high."""
    assert deepspeed_accepts(version, config) is not None


def test_deepspeed_judges_like_the_whole_package() -> None:
    """What stands in for torch and the logger changes no verdict: the real import agrees."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    release = fetch("deepspeed", "0.19.8")
    configs = [offload(3, ratio=0.5), offload(2, ratio=0.5), offload(2, pin=True), offload(1)]
    command = [sys.executable, "-I", "-c", IMPORT_WHOLE_DEEPSPEED, str(release)]
    whole = subprocess.check_output(command, input=json.dumps(configs), text=True, timeout=120)
    answers = [deepspeed_accepts("0.19.8", config) for config in configs]
    ours = ["refused" if answer else "accepted" for answer in answers]
    assert ours == ["accepted", "refused", "refused", "accepted"]
    assert ours == whole.split()[-len(configs) :]


@pytest.mark.parametrize(
    ("version", "present", "absent"),
    [
        ("0.15.2", "vllm_max_model_len", "vllm_mode"),
        ("0.17.0", "vllm_max_model_len", "vllm_enable_sleep_mode"),
        ("0.26.2", "vllm_max_model_length", "vllm_max_model_len"),
        ("1.16.0", "vllm_enable_sleep_mode", "max_prompt_length"),
        ("1.16.0", "gradient_checkpointing", "use_liger_loss"),  # a field of its base class
    ],
)
def test_trl_fields_follow_the_release(version: str, present: str, absent: str) -> None:
    """GRPOConfig has the fields of its release, inherited ones within TRL included."""
    fields = trl_fields(version)
    assert present in fields
    assert absent not in fields


@pytest.mark.parametrize(
    ("version", "argv", "refusal"),
    [
        ("0.2.9", "--zero_stage 3 --adam_offload --ref_reward_offload", None),
        ("0.2.5", "--zero_stage 3 --ref_reward_offload", "unrecognized arguments: --ref_reward_offload"),
        ("0.2.9", "--ref_offload", "ambiguous|unrecognized"),  # train_dpo.py has it
        ("0.2.9", "--zero_stage three", "invalid int value"),
        ("0.2.9", "--zero_stage", "expected one argument"),
        ("0.2.9", "--adam_offload yes", "unrecognized arguments: yes"),
        ("0.1.10", "--vllm_enable_sleep", "unrecognized arguments"),
    ],
)
def test_early_openrlhf_is_judged_by_its_own_flags(version: str, argv: str, refusal: str | None) -> None:
    """Releases that were tags only: what their parser took and refused."""
    error = openrlhf_accepts(version, "train_ppo_ray", argv.split())
    assert (error is None) if refusal is None else re.search(refusal, error or "") is not None


def test_described_parser_is_the_same_parser() -> None:
    """Rebuilt from its description, a parser is described the same: nothing that decides is lost."""
    path = fetch("openrlhf", "0.5.4") / "openrlhf" / "cli" / "train_ppo_ray.py"
    flags = describe(read_parser(path))
    assert (len(flags) > 80, describe(rebuild(flags, "x"))) == (True, flags)


def test_missing_version_is_unavailable() -> None:
    """A version that the registry lacks is reported with its name, for the skip message."""
    fetch("openrlhf", "0.11.2")  # skips here when there is no registry at all
    with pytest.raises(Unavailable, match=r"no openrlhf 0\.2\.9$"):
        fetch("openrlhf", "0.2.9")


def test_unreachable_registry_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a registry the reason says so, and the next release of the package does not wait."""
    monkeypatch.setenv("RLHFDOCTOR_CACHE", str(tmp_path))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setattr(registry, "_failures", {})
    monkeypatch.setattr(registry, "_PIP_OPTIONS", {"verl": ["--isolated", "--no-index"]})
    with pytest.raises(Unavailable, match="cannot be reached"):
        fetch("verl", "0.8.0")
    monkeypatch.setattr(registry, "_PIP_OPTIONS", {})  # asking pip again would be a KeyError
    with pytest.raises(Unavailable, match="cannot be reached"):
        fetch("verl", "0.9.1")
    assert list(tmp_path.iterdir()) == []
