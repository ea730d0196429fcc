"""Every proposed patch, put before the framework that must take it.

Incidents are the seed samples, and the logs of each rule's `fires/` beside a launch script or a
ds_config.json of a given release. A patched script is run by bash with stand-ins for `python3`,
`ray` and `docker` that note their arguments; these go to the release's own parser, or its Hydra
tree, or DeepSpeed's classes.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.core.rule_testing import samples
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.schema import Target
from rlhfdoctor.patch.apply import revert_files, write_change
from rlhfdoctor.patch.merge import Change, apply_all
from rlhfdoctor.patch.plan import Configuration, plan_patches
from rlhfdoctor.patch.spans import splice
from rlhfdoctor.settings.read import read_configuration
from rlhfdoctor.settings.spell import load_table, normal, spell
from rlhfdoctor.types import Finding, Framework, Incident, Patch

from .packages import deepspeed_accepts, openrlhf_accepts, trl_fields, verl_accepts
from .schemas import load as load_names

ROOT = Path(__file__).parents[2]
RULES = {rule.id: rule for rule in load_rules()}
SEEDS = (
    "openrlhf-save-kill",
    "openrlhf-72b-start",
    "openrlhf-72b-resume",
    "simplerl-third-generation",
    "openrlhf-zero3-generate",
    "easyr1-long-prompts",
)
OPENRLHF = ("0.5.3", "0.5.4", "0.9.7", "0.9.10", "0.10.2", "0.11.2")
EARLY = ("0.2.5", "0.2.9")
"""Tags of the repository that no registry has; 0.2.6 renamed what the reference model is reported."""
DOTTED = ("0.10.2", "0.11.2")
VERL = ("0.2", "0.4.1", "0.5.0", "0.6.1", "0.7.1", "0.8.0", "0.9.1")
DEEPSPEED = ("0.13.5", "0.16.9", "0.18.3", "0.19.4", "0.19.8")
TRL = ("0.16.1", "0.19.1", "0.26.2", "1.0.0", "1.16.0")
EASYR1 = ("0.3.0", "0.3.2")
RELEASES = [
    *((name, version) for version in (*EARLY, *OPENRLHF) for name in ("openrlhf full", "openrlhf bare")),
    *((name, version) for version in VERL for name in ("verl full", "verl bare")),
    *((name, version) for version in DEEPSPEED for name in ("deepspeed full", "deepspeed bare")),
    *(("trl full", version) for version in TRL),
    *(("easyr1 full", version) for version in EASYR1),
]
ONE_OF_EACH = [entry for entry in RELEASES if entry[1] in ("0.5.4", "0.5.0", "0.19.8", "1.0.0", "0.3.0")]

# What a script sets, by canonical name; each release spells it by the tables, and takes it (tested).
FULL = {
    "zero_stage": 3,
    "offload_optimizer": True,
    "ref.offload_param": True,
    "grad_accum_dtype": "fp32",
    "rollout.num_engines": 4,
    "rollout.tensor_parallel_size": 2,
    "rollout.gpu_memory_utilization": 0.6,
    "colocate_all": True,
    "rollout.sleep": True,
    "train.micro_batch_size": 8,
    "logprob.micro_batch_size": 16,
    "train.max_tokens": 16384,
    "rollout.batch_size": 512,
    "max_prompt_length": 1024,
    "max_response_length": 4096,
    "sequence_parallel_size": 2,
    "checkpoint.save_steps": 20,
    "checkpoint.save_hf": True,
    "checkpoint.resume": True,
    "dataloader_num_workers": 8,
}
BARE = {
    "zero_stage": 2,
    "rollout.num_engines": 4,
    "colocate_all": True,
    "train.micro_batch_size": 8,
    "logprob.micro_batch_size": 16,
    "max_response_length": 4096,
}
VERL_FULL = {
    "rollout.gpu_memory_utilization": 0.6,
    "rollout.tensor_parallel_size": 2,
    "rollout.max_num_batched_tokens": 16384,
    "rollout.max_model_len": 8192,
    "rollout.free_cache_engine": True,
    "rollout.swap_space": 40,
    "collective_timeout": 600,
    "train.micro_batch_size": 8,
    "logprob.micro_batch_size": 16,
    "ref.logprob_micro_batch_size": 16,
    "train.max_tokens": 16384,
    "rollout.batch_size": 512,
    "max_prompt_length": 1024,
    "max_response_length": 4096,
    "sequence_parallel_size": 2,
    "gradient_checkpointing": False,
    "offload_optimizer": True,
    "offload_param": True,
    "ref.offload_param": True,
    "checkpoint.save_steps": 20,
    "checkpoint.resume": "auto",
    "dataloader_num_workers": 8,
}
VERL_BARE = {"rollout.gpu_memory_utilization": 0.6, "train.micro_batch_size": 8, "max_response_length": 4096}
DS_FULL = {
    "train_batch_size": 16,
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": True},
        "offload_param": {"device": "cpu", "pin_memory": True},
    },
    "data_types": {"grad_accum_dtype": "fp32"},
    "bf16": {"enabled": True},
}
DS_BARE = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}, "bf16": {"enabled": True}}
TRL_FULL = {
    "rollout.gpu_memory_utilization": 0.6,
    "rollout.tensor_parallel_size": 2,
    "rollout.sleep": True,
    "max_prompt_length": 1024,
    "max_response_length": 4096,
    "train.micro_batch_size": 8,
    "gradient_checkpointing": False,
    "collective_timeout": 1800,
    "zero3_gather_for_generation": True,
    "checkpoint.save_steps": 20,
    "dataloader_num_workers": 8,
    "rollout.max_model_len": 8192,
}
EASYR1_FULL = {
    "rollout.gpu_memory_utilization": 0.6,
    "rollout.tensor_parallel_size": 2,
    "max_prompt_length": 1024,
    "max_response_length": 4096,
    "train.micro_batch_size": 8,
    "logprob.micro_batch_size": 16,
    "offload_optimizer": True,
    "offload_param": True,
    "rank0_init": False,
    "ref.offload_param": True,
    "gradient_checkpointing": False,
    "rollout.max_num_batched_tokens": 16384,
    "rollout.batch_size": 512,
}
PACKAGES = "torch==2.6.0\nvllm==0.8.5\nray==2.44.1\n"
DOCKER = "docker run -d --memory=500g --shm-size=1g nvcr.io/nvidia/pytorch:24.07-py3 sleep infinity\n"

OWN = ("launch.sh", "pip-freeze.txt", "versions.txt", "config.yaml", "ds_config.json")
"""Configuration of a sample, which another takes the place of."""
LAUNCHERS = ("python3", "python", "ray", "docker", "tee", "deepspeed", "torchrun")
STAND_IN = (
    '#!/bin/sh\n{ printf \'%s\\0\' "${0##*/}" "$@"; printf \'\\036\'; } > "$CALLS.$$"; cat "$CALLS.$$" >> "$CALLS"\n'
)
"""Notes its call in one write: the programs of a pipe run side by side."""


# --- configurations -----------------------------------------------------------------------------


def launch(settings: Mapping[str, object], framework: str, version: str) -> str:
    """A launch script with the settings that this release has, in its spelling."""
    program = "-m openrlhf.cli.train_ppo_ray" if framework == "openrlhf" else "-m verl.trainer.main_ppo"
    words = [f"python3 {'examples/train_ppo_ray.py' if version in EARLY else program}"]
    for name, value in settings.items():
        spelling = spell(name, framework, version)
        if spelling is not None and framework == "openrlhf":
            words.append(spelling.spelled if value is True else f"{spelling.spelled} {value}")
        elif spelling is not None:
            words.append(f"{spelling.spelled}={value}")
    if framework == "openrlhf":
        words.append("--actor.num_nodes 1" if version in DOTTED else "--actor_num_nodes 1")  # in no table
    return "#!/bin/bash\n" + DOCKER + " \\\n    ".join(words) + "\n"


def document(settings: Mapping[str, object], framework: str, version: str) -> str:
    """A YAML file with the settings that this release has, nested at the dots of their names."""
    tree: dict[str, object] = {}
    for name, value in settings.items():
        spelling = spell(name, framework, version)
        if spelling is None or spelling.form != "yaml":
            continue
        *path, last = spelling.spelled.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})  # type: ignore[assignment]
        place[last] = value
    return yaml.safe_dump(tree, sort_keys=False)


def keys_of(text: str) -> set[str]:
    """The settings that a YAML file sets, with dots."""

    def walk(tree: object, before: str) -> Iterator[str]:
        for key, value in tree.items() if isinstance(tree, dict) else ():
            if isinstance(value, dict):
                yield from walk(value, f"{before}{key}.")
            else:
                yield f"{before}{key}"

    return set(walk(yaml.safe_load(text), ""))


def document_refusal(framework: str, version: str, text: str) -> str | None:
    """TRL's fields by its own classes and transformers'; EasyR1's, which is not on PyPI, as `make schemas` read them from its tags."""
    if framework == "trl":
        transformers = pytest.importorskip("transformers")
        taken = trl_fields(version) | {field.name for field in dataclasses.fields(transformers.TrainingArguments)}
        taken |= {"gradient_checkpointing", "ddp_timeout", "dataloader_num_workers", "save_steps"}
    else:
        taken = load_names()["easyr1"][version]
    stray = sorted(keys_of(text) - taken)
    return f"{framework} {version} has no field {', '.join(stray)}" if stray else None


def configuration(kind: str, version: str) -> dict[str, str]:
    """File name -> text: a launch script or a ds_config.json, and the list of packages."""
    framework, _, variant = kind.partition(" ")
    if framework == "deepspeed":
        config = DS_FULL if variant == "full" else DS_BARE
        run = f"#!/bin/bash\n{DOCKER}deepspeed --num_gpus 8 train.py --deepspeed_config ds_config.json\n"
        return {
            "ds_config.json": json.dumps(config, indent=2),
            "launch.sh": run,
            "pip-freeze.txt": f"deepspeed=={version}\n{PACKAGES}",
        }
    if framework in ("trl", "easyr1"):
        run = f"#!/bin/bash\n{DOCKER}python3 -m {'trl.scripts.grpo' if framework == 'trl' else 'verl.trainer.main'} config=config.yaml\n"
        return {
            "config.yaml": document(TRL_FULL if framework == "trl" else EASYR1_FULL, framework, version),
            "launch.sh": run,
            "pip-freeze.txt": f"{framework}=={version}\n{PACKAGES}",
        }
    chosen = {"openrlhf": (FULL, BARE), "verl": (VERL_FULL, VERL_BARE)}[framework][variant == "bare"]
    packages = f"{framework}=={version}\n{PACKAGES}" + ("deepspeed==0.16.9\n" if framework == "openrlhf" else "")
    return {"launch.sh": launch(chosen, framework, version), "pip-freeze.txt": packages}


def named(kind: str, version: str) -> str | None:
    """The framework of a configuration for `--framework`: a rule's own log may show another one."""
    framework = kind.partition(" ")[0]
    return None if framework == "deepspeed" else f"{framework}=={version}"


def incidents(rule: str, files: Mapping[str, str], folder: Path, framework: str | None = None) -> Iterator[Incident]:
    """The rule's own logs beside another configuration, each analysed."""
    for sample in samples(RULES[rule]):
        if sample.parent.name == "fires":
            target = folder / sample.name
            shutil.copytree(sample, target, ignore=shutil.ignore_patterns(*OWN, "expected.diff"))
            for name, text in files.items():
                (target / name).write_text(text)
            yield analyze([str(target)], framework=framework)


def patches_of(rule: str, kind: str, version: str, folder: Path) -> list[Patch]:
    """The rule's patches with a diff on a configuration, from incidents and straight from its treatments."""
    files = configuration(kind, version)
    found = [p for i in incidents(rule, files, folder, named(kind, version)) for f in i.findings if f.cause == rule for p in f.patches]
    straight = folder / "straight"
    straight.mkdir()
    for name, text in files.items():
        (straight / name).write_text(text)
    texts = {str(straight / name): text for name, text in files.items() if name != "pip-freeze.txt"}
    framework = kind.partition(" ")[0]
    own = None if framework == "deepspeed" else Framework(name=framework, version=version)
    settings = [s for name, text in texts.items() for s in read_configuration(name, text, framework)[0]]
    versions = dict(line.split("==") for line in files["pip-freeze.txt"].splitlines())
    known = Configuration(texts, settings, own, {name: (value, "") for name, value in versions.items()})
    for treatment in RULES[rule].remediation:
        found += plan_patches([treatment], Facts(events={}, evidence={}, settings={}), known)
    return [p for p in found if p.diff]


# --- judges -------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of programs that note their arguments and do nothing."""
    folder = tmp_path_factory.mktemp("bin")
    for name in LAUNCHERS:
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    return folder


def calls(script: str, folder: Path, stand_ins: Path) -> list[list[str]]:
    """What bash starts when it runs a script."""
    (folder / "under-test.sh").write_bytes(script.encode("utf-8", "surrogateescape"))
    log = folder / "calls"
    log.unlink(missing_ok=True)
    log.touch()
    env = {"PATH": f"{stand_ins}:/usr/bin:/bin", "HOME": str(stand_ins), "CALLS": str(log)}
    subprocess.run(["bash", "under-test.sh"], cwd=folder, env=env, capture_output=True, check=False, timeout=20)
    return [call.split("\0")[:-1] for call in log.read_text().split("\036")[:-1]]


def training_words(script: str, folder: Path, stand_ins: Path) -> tuple[str, ...]:
    """The arguments behind the name of the training program."""
    marks = ("train_ppo_ray", "verl.trainer.main")
    for call in calls(script, folder, stand_ins):
        for index, word in enumerate(call):
            if any(mark in word for mark in marks):
                return tuple(call[index + 1 :])
    raise AssertionError(f"bash starts no training in:\n{script}")


@functools.cache
def judge(framework: str, version: str, words: tuple[str, ...]) -> str | None:
    """The framework's own error text, or None."""
    if framework == "openrlhf":
        return openrlhf_accepts(version, "train_ppo_ray", words)
    return verl_accepts(version, words)


def refusal(framework: str, version: str, name: str, text: str, folder: Path, stand_ins: Path) -> str | None:
    """What the release says against a patched file, or None."""
    if name.endswith(".yaml"):
        return document_refusal(framework, version, text)
    if framework in ("trl", "easyr1"):
        ran = [call[0] for call in calls(text, folder, stand_ins)]
        return None if ran == ["docker", "python3"] else f"bash ran {ran}"
    if name.endswith(".json"):
        return deepspeed_accepts(version, json.loads(text))
    if framework == "deepspeed":
        ran = [call[0] for call in calls(text, folder, stand_ins)]
        return None if ran == ["docker", "deepspeed"] else f"bash ran {ran}"
    return judge(framework, version, training_words(text, folder, stand_ins))


def refused(
    rules: Sequence[str], kind: str, version: str, folder: Path, stand_ins: Path
) -> list[tuple[str, str, str, str]]:
    """(rule, setting, as spelled, error) of the rules' patches that the release does not take.

    Hydra takes a second or more for a tree, so verl's overrides are tried together first, and
    one by one only if one of them is refused.
    """
    framework = kind.partition(" ")[0]
    after: dict[str, tuple[str, Patch]] = {}
    for rule in rules:
        (folder / rule).mkdir()
        for patch in patches_of(rule, kind, version, folder / rule):
            file = Path(str(patch.file))
            before = file.read_text()
            text = splice(before, patch.replacements)
            write_change(Change(str(file), before, text, before, patch.replacements, 1))
            assert (file.read_text(), revert_files([file.parent]), file.read_text()) == (text, [file], before)
            after.setdefault(text, (rule, patch))
    if framework == "verl":
        words = [word for text in after for word in training_words(text, folder, stand_ins)]
        if judge("verl", version, tuple(dict.fromkeys(words))) is None:
            return []
    found = []
    for text, (rule, patch) in after.items():
        error = refusal(framework, version, str(patch.file), text, folder, stand_ins)
        if error is not None:
            found.append((rule, patch.setting, f"{patch.spelled} {patch.after}", error))
    return found


def count_matrix(folder: Path) -> str:
    """MATRIX.md: for each release the rules that have a patch for it, and how many different patches."""
    lines = [
        "# Patches by release",
        "",
        "Made by `make schemas`; `tests/frameworks/test_patches.py` puts each of them before the release's own parser, schema or field table,",
        "writes it, takes it back byte for byte, and asks again.",
        "",
        "| configuration | release | rules with a patch | rule x patch pairs | asked for again |",
        "|---|---|---:|---:|---:|",
    ]
    total = 0
    for kind, version in RELEASES:
        pairs, repeated = set(), []
        for rule in (rule.id for rule in RULES.values() if rule.remediation):
            place = folder / f"{kind}-{version}-{rule}".replace(" ", "-")
            place.mkdir()
            pairs |= {(rule, p.setting, p.after) for p in patches_of(rule, kind, version, place)}
            again_place = place.with_name(f"{place.name}-again")
            again_place.mkdir()
            repeated += restless(rule, kind, version, again_place)
        total += len(pairs)
        lines.append(f"| {kind} | {version} | {len({rule for rule, *_ in pairs})} | {len(pairs)} | {len(repeated)} |")
    return "\n".join([*lines, "", f"{total} pairs in all, over {len(RELEASES)} configurations.", ""])


# --- tests: synthetic configurations ------------------------------------------------------------


@pytest.mark.network
@pytest.mark.parametrize(("kind", "version"), RELEASES)
def test_configuration_itself_is_accepted(kind: str, version: str, tmp_path: Path, stand_ins: Path) -> None:
    """Before any patch the release takes all of it, so a refusal is the patch's; the tables spell it right."""
    name, text = next(iter(configuration(kind, version).items()))
    assert refusal(kind.partition(" ")[0], version, name, text, tmp_path, stand_ins) is None


@pytest.mark.network
@pytest.mark.parametrize(("kind", "version"), RELEASES)
def test_patches_are_accepted(kind: str, version: str, tmp_path: Path, stand_ins: Path) -> None:
    """Each patch of each rule alone leaves a configuration that the release's own code takes."""
    assert refused([rule.id for rule in RULES.values() if rule.remediation], kind, version, tmp_path, stand_ins) == []


@pytest.mark.sweep
@pytest.mark.parametrize(("kind", "version"), ONE_OF_EACH)
@pytest.mark.parametrize("rule", [rule.id for rule in RULES.values() if rule.remediation])
def test_fixed_values_are_proposed_once(rule: str, kind: str, version: str, tmp_path: Path) -> None:
    """With a finding's patches applied, a second analysis asks for none of its fixed values again.

    Values that scale (half the micro batch) may go on until they reach their least.
    """
    assert restless(rule, kind, version, tmp_path) == []


def restless(rule: str, kind: str, version: str, folder: Path) -> list[str]:
    """Settings of fixed values that a rule asks for again after its own patch of them was written."""
    fixed = {t.setting for t in RULES[rule].remediation if not isinstance(t.to, Target) and not t.instead}
    found = []
    for incident in incidents(rule, configuration(kind, version), folder, named(kind, version)):
        for patch in (
            p for f in incident.findings if f.cause == rule for p in f.patches if p.diff and p.setting in fixed
        ):
            found += [patch.setting] if patch.setting in again(patch, incident, rule) else []
    return found


def again(patch: Patch, incident: Incident, rule: str) -> list[str]:
    """Settings that the rule would change after one of its patches was written."""
    path = Path(str(patch.file))
    before = path.read_text()
    path.write_text(splice(before, patch.replacements))
    try:
        second = analyze(list(incident.sources))
    finally:
        path.write_text(before)
    return [p.setting for f in second.findings if f.cause == rule for p in f.patches if p.diff]


# --- tests: silent no-ops (settings_notes.md, section 2) -----------------------------------


def proposed(rule: str, files: Mapping[str, str], folder: Path) -> dict[str, Patch]:
    """Setting -> patch with a diff, of the rule's own finding."""
    found = {}
    for incident in incidents(rule, files, folder):
        found.update({p.setting: p for f in incident.findings if f.cause == rule for p in f.patches if p.diff})
    return found


@pytest.mark.parametrize(
    ("rule", "kind", "version", "setting"),
    [
        *(("comm-long-generation", "verl full", version, "collective_timeout") for version in ("0.8.0", "0.9.1")),
        *(
            ("host-engine-sleep-backup", "verl full", version, "rollout.free_cache_engine")
            for version in ("0.2", "0.4.1", "0.6.1", "0.8.0", "0.9.1")
        ),
        *(("host-rollout-cache-churn", "verl full", version, "rollout.free_cache_engine") for version in VERL),
        *(("gpu-trainer-cache-held", "openrlhf full", version, "train.sleep") for version in OPENRLHF),
        *(("host-fp32-grad-accum", "openrlhf bare", version, "grad_accum_dtype") for version in OPENRLHF[1:]),
        *(("host-checkpoint-resume", "openrlhf full", version, "offload_optimizer.ratio") for version in OPENRLHF),
        *(("host-checkpoint-resume", "deepspeed bare", version, "offload_optimizer.ratio") for version in DEEPSPEED),
        *(("gpu-logits-upcast", "verl bare", "0.2", setting) for setting in ("fused_logits", "entropy_chunking")),
        *(("gpu-rollout-reservation", "openrlhf bare", version, "rollout.sleep") for version in OPENRLHF[:2]),
    ],
)
def test_no_op_of_this_release_is_not_written(rule: str, kind: str, version: str, setting: str, tmp_path: Path) -> None:
    """A key that the release takes and does not act on is no cure."""
    assert setting not in proposed(rule, configuration(kind, version), tmp_path)


def test_sleep_needs_colocation(tmp_path: Path) -> None:
    """`--vllm_enable_sleep` without --colocate_all_models is reset with a print."""
    files = configuration("openrlhf bare", "0.9.7")
    alone = {**files, "launch.sh": files["launch.sh"].replace(" \\\n    --colocate_all_models", "")}
    assert "--colocate_all" not in alone["launch.sh"]
    assert "rollout.sleep" not in proposed("gpu-rollout-reservation", alone, tmp_path)


def stage_2(files: Mapping[str, str]) -> dict[str, str]:
    """The same script with ZeRO-2."""
    return {name: text.replace("zero_stage 3", "zero_stage 2") for name, text in files.items()}


@pytest.mark.parametrize("version", OPENRLHF)
def test_reference_offload_below_stage_3_is_left_alone(version: str, tmp_path: Path) -> None:
    """`--ref_reward_offload` does nothing below ZeRO-3, so to take it out frees nothing."""
    assert "ref.offload_param" not in proposed(
        "host-oversubscribed", stage_2(configuration("openrlhf full", version)), tmp_path
    )


@pytest.mark.parametrize("rule", ["gpu-micro-batch", "gpu-model-states"])
@pytest.mark.parametrize("version", VERL)
def test_default_is_not_added(rule: str, version: str, tmp_path: Path) -> None:
    """`enable_gradient_checkpointing=True` changes nothing where it is the default."""
    assert "gradient_checkpointing" not in proposed(rule, configuration("verl bare", version), tmp_path)


@pytest.mark.parametrize(
    ("kind", "version"), [("verl full", "0.6.1"), ("openrlhf full", "0.9.7"), ("openrlhf full", "0.11.2")]
)
def test_token_budget_needs_dynamic_batches(kind: str, version: str, tmp_path: Path) -> None:
    """Without dynamic batches the budget of tokens is not read."""
    assert "train.max_tokens" not in proposed("gpu-long-sequences", configuration(kind, version), tmp_path)


@pytest.mark.parametrize("rule", ["gpu-long-sequences", "gpu-micro-batch", "gpu-logits-upcast", "gpu-model-states"])
def test_micro_batch_is_not_read_with_dynamic_batches(rule: str, tmp_path: Path) -> None:
    """With use_dynamic_bsz, ppo_max_token_len_per_gpu rules and the micro batch is ignored."""
    files = configuration("verl full", "0.6.1")
    files["launch.sh"] = files["launch.sh"].rstrip() + " actor_rollout_ref.actor.use_dynamic_bsz=True\n"
    assert "train.micro_batch_size" not in proposed(rule, files, tmp_path)


@pytest.mark.parametrize("version", OPENRLHF[2:])
def test_one_kind_of_checkpoint_is_left(version: str, tmp_path: Path) -> None:
    """Of the DeepSpeed copy and the Hugging Face copy one must stay (ppo_actor.py writes nothing else): the former does."""
    patches = proposed("host-checkpoint-save", configuration("openrlhf full", version), tmp_path)
    assert "checkpoint.disable_deepspeed" not in patches


@pytest.mark.parametrize("version", OPENRLHF[2:])
@pytest.mark.parametrize(
    ("rule", "setting"),
    [
        ("comm-long-generation", "rollout.num_engines"),
        ("gpu-kv-cache-too-small", "rollout.tensor_parallel_size"),
        ("gpu-rollout-reservation", "rollout.tensor_parallel_size"),
        ("host-engine-sleep-backup", "rollout.tensor_parallel_size"),
    ],
)
def test_colocated_engines_keep_their_number_of_gpus(rule: str, setting: str, version: str, tmp_path: Path) -> None:
    """With --colocate_all_models the run stops at once when the product changes (train_ppo_ray.py:46 at 0.9.7)."""
    assert setting not in proposed(rule, configuration("openrlhf full", version), tmp_path)


@pytest.mark.parametrize("version", OPENRLHF)
def test_adam_offload_is_not_taken_for_sleep(version: str, tmp_path: Path) -> None:
    """With --adam_offload, deepspeed sleep returns at once: the two are never proposed together."""
    patches = proposed("gpu-model-states", configuration("openrlhf bare", version), tmp_path)
    assert not {"train.sleep", "offload_optimizer"} <= set(patches)


@pytest.mark.parametrize("version", ["0.13.5", "0.16.9", "0.18.3"])
def test_pin_memory_tells_where_it_is_not_honoured(version: str, tmp_path: Path) -> None:
    """At ZeRO-1/2, DeepSpeed 0.14.1 to 0.18.2 pins the master weights anyway; the patch says so."""
    patch = proposed("host-pinned-offload", configuration("deepspeed full", version), tmp_path)[
        "offload_optimizer.pin_memory"
    ]
    assert ('"pin_memory": false' in patch.diff, "0.14.1 to 0.18.2" in " ".join(map(str, patch.side_effects))) == (
        True,
        True,
    )


@pytest.mark.parametrize("version", DEEPSPEED)
def test_pinning_backend_only_where_it_exists(version: str, tmp_path: Path) -> None:
    """DS_PIN_MEMORY_BACKEND came with DeepSpeed 0.19.6."""
    patches = proposed("host-pinned-offload", configuration("deepspeed full", version), tmp_path)
    assert ("pin_memory_backend" in patches) == (version == "0.19.8")


def test_notes_name_no_spelling_of_another_program() -> None:
    """With the version unknown all spellings are reported, but not train_sft's --model.gradient_checkpointing_enable."""
    known = Configuration({}, [], Framework(name="openrlhf", version=None), {})
    treatments = [t for t in RULES["gpu-no-recompute"].remediation if t.setting == "gradient_checkpointing"]
    notes = " ".join(str(p.note) for p in plan_patches(treatments, Facts(events={}, evidence={}, settings={}), known))
    assert ("--actor.gradient_checkpointing_enable" in notes, "--model.gradient" in notes) == (True, False)


# --- tests: seed samples ------------------------------------------------------------------------


@functools.cache
def truth(sample: str) -> dict[str, object]:
    """What is known of a sample."""
    return dict(yaml.safe_load((ROOT / "samples" / sample / "truth.yaml").read_text()))


def first_finding(sample: str, folder: Path) -> tuple[Incident, Finding]:
    """The best finding of a copy of a sample."""
    shutil.copytree(ROOT / "samples" / sample / "run", folder / "run")
    incident = analyze([str(folder / "run")])
    assert incident.best is not None
    return incident, incident.best


@pytest.mark.parametrize("sample", SEEDS)
def test_first_finding_is_the_cause(sample: str, tmp_path: Path) -> None:
    """The best finding is one that the sample's truth accepts."""
    _, finding = first_finding(sample, tmp_path)
    assert finding.cause in truth(sample)["accept"]  # type: ignore[operator]


@pytest.mark.parametrize("sample", SEEDS)
def test_first_finding_offers_a_patch_of_the_truth(sample: str, tmp_path: Path) -> None:
    """One of the patches that the truth names is offered, written or told."""
    _, finding = first_finding(sample, tmp_path)
    offered = {word for p in finding.patches for word in (p.spelled, p.setting)}
    assert offered & set(truth(sample)["patch"])  # type: ignore[call-overload]


@pytest.mark.parametrize("sample", SEEDS)
def test_patches_of_a_seed_can_be_applied_together(sample: str, tmp_path: Path) -> None:
    """All diffs of the first finding go into the files, and each setting then has its new value."""
    incident, finding = first_finding(sample, tmp_path)
    wanted = [p for p in finding.patches if p.diff]
    for name, text in ((change.file, change.after) for change in apply_all(wanted)):
        Path(name).write_text(text)
        prefer = incident.framework.name if incident.framework else None
        now = {s.name: s.value for s in read_configuration(name, text, prefer)[0]}
        changed = [p for p in wanted if p.file == name and p.after not in ("null", "false")]
        assert [(p.setting, p.after) for p in changed] == [(p.setting, str(now[p.setting])) for p in changed]


@pytest.mark.network
@pytest.mark.parametrize(
    ("sample", "version"),
    [
        pytest.param("openrlhf-72b-start", "0.5.4"),
        pytest.param("openrlhf-72b-resume", "0.5.4"),
        pytest.param("openrlhf-save-kill", "0.1.10"),
        pytest.param("openrlhf-zero3-generate", "0.2.5"),
    ],
)
def test_patched_seed_is_parsed_by_its_openrlhf(sample: str, version: str, tmp_path: Path, stand_ins: Path) -> None:
    """The whole patched command line, with the patches of every finding one by one, is parsed by the release of the seed."""
    incident, _ = first_finding(sample, tmp_path)
    errors = {}
    for patch in (p for f in incident.findings for p in f.patches if p.diff):
        after = splice(Path(str(patch.file)).read_text(), patch.replacements)
        error = judge("openrlhf", version, training_words(after, tmp_path, stand_ins))
        if error is not None:
            errors[patch.spelled] = error
    assert errors == {}


@pytest.mark.network
def test_patched_seed_is_composed_by_verl(tmp_path: Path, stand_ins: Path) -> None:
    """simpleRL forked verl 0.2: Hydra composes what is not the fork's own, and the table has the rest."""
    _, finding = first_finding("simplerl-third-generation", tmp_path)
    text = apply_all([p for p in finding.patches if p.diff])[0].after
    words = training_words(text, tmp_path, stand_ins)
    fork = {
        "actor_rollout_ref.rollout.swap_space",
        "actor_rollout_ref.rollout.micro_rollout_batch_size",
        "trainer.remove_clip",
    }
    own = [word for word in words if word.partition("=")[0].lstrip("+") not in fork]
    assert judge("verl", "0.2", tuple(word for word in own if word != "+trainer.val_before_train=False")) is None
    assert "actor_rollout_ref.rollout.swap_space=4" in words
    known = {normal(s.spelled) for s in load_table("simplerl")}
    assert {p.spelled for p in finding.patches if p.diff and normal(p.spelled) not in known} == set()


def test_patched_seed_keeps_the_keys_of_easyr1(tmp_path: Path) -> None:
    """EasyR1 is not on PyPI: the patched file has the same keys as before, all of release 0.3.0."""
    _, finding = first_finding("easyr1-long-prompts", tmp_path)
    (change,) = apply_all([p for p in finding.patches if p.diff])
    before = {s.spelled for s in read_configuration(change.file, change.before, "easyr1")[0]}
    after = {s.spelled for s in read_configuration(change.file, change.after, "easyr1")[0]}
    assert before == after
    rows = {p.spelled: [s for s in load_table("easyr1") if s.spelled == p.spelled] for p in finding.patches if p.diff}
    assert dict.fromkeys(rows, True) == {key: any(s.holds_at("0.3.0") for s in found) for key, found in rows.items()}


@pytest.mark.parametrize("sample", SEEDS)
def test_treated_seed_comes_to_rest(sample: str, tmp_path: Path) -> None:
    """Applied again and again, the first finding's patches end: no setting flips to and fro for ever."""
    _, finding = first_finding(sample, tmp_path)
    seen = set()
    for _ in range(12):
        wanted = [p for p in finding.patches if p.diff and p.setting not in ("actor_num_nodes", "checkpoint.resume")]
        changes = apply_all(wanted)
        if not changes:
            break
        for change in changes:
            Path(change.file).write_text(change.after)
        state = tuple(change.after for change in changes)
        assert state not in seen
        seen.add(state)
        incident = analyze([str(tmp_path / "run")])
        finding = next((f for f in incident.findings if f.cause == finding.cause), replace(finding, patches=()))
    fixed = {t.setting for t in RULES[finding.cause].remediation if not isinstance(t.to, Target) and not t.instead}
    assert [
        p.setting for p in finding.patches if p.diff and p.setting in fixed - {"actor_num_nodes", "checkpoint.resume"}
    ] == []
