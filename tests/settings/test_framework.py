"""Which framework ran, in which version, and how that is known."""

from __future__ import annotations

import pytest

from rlhfdoctor.i18n.message import ENGLISH, quoted
from rlhfdoctor.settings import framework, spell
from rlhfdoctor.settings.framework import find_framework, find_versions
from rlhfdoctor.settings.read import read_configuration
from rlhfdoctor.settings.spell import claimants, load_table, normal
from rlhfdoctor.types import Event, Framework, Setting
from tests.build import make_event, make_setting, read_log


def name_of(events: list[Event], settings: list[Setting] | None = None) -> str | None:
    """The name of the framework."""
    found = find_framework(events, settings or [], find_versions(events))
    return found.name if found else None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("openrlhf", Framework(name="openrlhf", basis=quoted("--framework"))),
        ("OpenRLHF", Framework(name="openrlhf", basis=quoted("--framework"))),
        ("verl==0.4.1", Framework(name="verl", version="0.4.1", basis=quoted("--framework"))),
        ("trl==", Framework(name="trl", basis=quoted("--framework"))),
    ],
)
def test_given(given: str, expected: Framework) -> None:
    """What the user says wins over everything that the logs say."""
    events = read_log("python3 -m openrlhf.cli.train_ppo_ray\nopenrlhf==0.5.3\n")
    assert find_framework(events, [], find_versions(events), given) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3\n", "openrlhf"),
        ("python3 -m verl.trainer.main_ppo data.train_batch_size=8\n", "verl"),
        ("cd EasyR1\n", "easyr1"),
        ("from trl.trainer.grpo_trainer import GRPOTrainer\n", "trl"),
        ("/home/u/simpleRL-reason/train.sh\n", "simplerl"),
        ("openrlhf==0.5.3\n", "openrlhf"),
        ("trl                       0.18.1\n", "trl"),
        ('  File "/opt/verl/workers/a.py", line 1, in f\n  File "/opt/verl/workers/b.py", line 2, in g\n', "verl"),
        ('  File "/opt/trl/trainer/a.py", line 1, in f\n', "trl"),
        ("nothing to go by\n", None),
        ("torch==2.6.0\nray==2.40.0\n", None),
        ("", None),
    ],
)
def test_by_its_marks(text: str, expected: str | None) -> None:
    """Modules, packages and paths tell the framework; nothing is said where there is too little."""
    assert name_of(read_log(text)) == expected


@pytest.mark.parametrize(
    ("actor", "expected"),
    [
        ("ActorModelRayActor", "openrlhf"),
        ("LLMRayActor", "openrlhf"),
        ("PolicyModelActor", "openrlhf"),
        ("WorkerDict", "verl"),
        ("TaskRunner", "verl"),
        ("Runner", "easyr1"),
        ("MyActor", None),
    ],
)
def test_by_its_actors(actor: str, expected: str | None) -> None:
    """Four lines of an actor that only one framework has are enough."""
    assert name_of([make_event("nccl.down", actor=actor, line=line) for line in range(4)]) == expected


def test_a_single_line_is_too_little() -> None:
    """One line of an actor does not name the framework."""
    assert name_of([make_event("nccl.down", actor="WorkerDict")]) is None


@pytest.mark.parametrize("fork", ["easyr1", "simplerl"])
def test_forks_of_verl(fork: str) -> None:
    """The marks of verl inside of a fork are the fork's."""
    mark = {"easyr1": "EasyR1", "simplerl": "simpleRL-reason"}[fork]
    events = [make_event("nccl.down", actor="WorkerDict", line=line) for line in range(50)]
    assert name_of([*events, make_event("framework.module", name=mark)]) == fork


def test_settings_vote() -> None:
    """Spellings that only one table knows tell the framework."""
    assert name_of([], [make_setting("--adam_offload"), make_setting("--colocate_all_models")]) == "openrlhf"


def test_dumped_settings_do_not_vote() -> None:
    """What a log dumps is read by the preferred table, so it is no sign of the framework."""
    assert name_of([], [make_setting("--adam_offload", form="dump")] * 5) is None


@pytest.mark.parametrize(
    ("spelled", "since", "until"),
    [
        (["--adam_offload", "--zero_stage"], "0.0.1", "0.10.1.post2"),
        (["--adam_offload", "--colocate_all_models"], "0.5.8", "0.10.1.post2"),
        (["--ds.adam_offload", "--train.colocate_all"], "0.10.2", None),
    ],
)
def test_range_of_releases(spelled: list[str], since: str | None, until: str | None) -> None:
    """Where the version is unknown, the spellings tell the oldest and newest that it can be."""
    found = find_framework([], [make_setting(word) for word in spelled], {})
    assert found is not None
    assert (found.version, found.since, found.until) == (None, since, until)


def test_a_flag_that_is_repeated_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each spelling is looked up once, in an index of the table: a command may hold one tens of thousands of times."""
    words = ["--adam_offload", "--colocate_all_models"]
    steps = 0

    def counted(spelled: str) -> str:
        nonlocal steps
        steps += 1
        return normal(spelled)

    found = find_framework([], [make_setting(word) for word in words], {})  # builds the index
    for module in (spell, framework):
        monkeypatch.setattr(module, "normal", counted)
    settings = [make_setting(word) for word in words * 1000]
    steps = 0
    assert find_framework([], settings, {}) == found
    assert steps < 4 * len(settings)


def test_range_from_a_script() -> None:
    """The range is that of the settings in the user's script."""
    settings, _ = read_configuration(
        "run.sh", "python3 -m x --adam_offload --colocate_all_models --zero_stage 3", "openrlhf"
    )
    found = find_framework([], settings, {})
    assert found is not None
    assert (found.name, found.since, found.until, str(found.basis)) == ("openrlhf", "0.5.8", "0.10.1.post2", "run.sh:1")


def test_range_from_a_log() -> None:
    """A command that ran was spelled as its release takes it; a dump has names of every release."""
    found = find_framework([], [make_setting("--adam_offload", form="argv")] * 2, {})
    dumped = find_framework([], [make_setting("--adam_offload", form="dump")] * 2, {})
    assert found is not None
    assert (found.since, found.until) == ("0.0.1", "0.10.1.post2")
    assert dumped is None or (dumped.since, dumped.until) == (None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("openrlhf==0.5.3\n", {"openrlhf": ("0.5.3", "run.log:1")}),
        ("\nverl                      0.4.1\n", {"verl": ("0.4.1", "run.log:2")}),
        ("torch==2.6.0+cu124\n", {"torch": ("2.6.0", "run.log:1")}),
        ("vllm==0.8.5.post1\nvllm==0.9.0\n", {"vllm": ("0.8.5.post1", "run.log:1")}),
        (
            "[INFO] [logging.py:96:log_dist] [Rank 0] DeepSpeed info: version=0.13.0, git-hash=unknown\n",
            {"deepspeed": ("0.13.0", "run.log:1")},
        ),
        ("NCCL version 2.21.5+cuda12.4\n", {"nccl": ("2.21.5", "run.log:1")}),
        (
            "INFO 05-07 02:14:18 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config\n",
            {"vllm": ("0.8.5", "run.log:1")},
        ),
        ("raylet==1\nmytorch==2.0\n", {}),
    ],
)
def test_versions(text: str, expected: dict[str, tuple[str, str]]) -> None:
    """Banners and package lists give versions with the line that says so; the first one counts."""
    assert find_versions(read_log(text)) == expected


def test_version_of_the_framework() -> None:
    """The version of the package is that of the framework, with its line as the basis."""
    events = read_log("\nopenrlhf==0.5.3\npython3 -m openrlhf.cli.train_ppo_ray\n")
    found = find_framework(events, [], find_versions(events))
    assert found == Framework(name="openrlhf", version="0.5.3", basis=quoted("run.log:2"))


def test_a_list_of_packages_is_a_weak_sign() -> None:
    """Where nothing else names a framework a person's list does, and it is said that nothing else does."""
    events = read_log("trl==0.18.1\ntorch==2.6.0\n")
    found = find_framework(events, [], find_versions(events))
    assert found is not None
    assert (found.name, found.version, ENGLISH(found.basis)) == (
        "trl",
        "0.18.1",
        "run.log:1: only what is installed shows it",
    )


@pytest.mark.parametrize(
    ("text", "recorded", "expected"),
    [
        ("trl==0.18.1\n", True, None),  # the recorder lists the whole environment
        ("trl==0.18.1\nverl==0.4.1\n", False, None),  # an environment for both
        ("trl==0.18.1\npython3 -m verl.trainer.main_ppo data.train_batch_size=8\n", False, "verl"),
        ("trl==0.18.1\nverl==0.4.1\n" + '  File "/w/verl/workers/a.py", line 1, in f\n', True, "verl"),
        ('  File "/root/.venv/verl/lib/python3.10/site-packages/ray/worker.py", line 9, in get\n', False, "verl"),
        ('  File "/root/.venv/verl/lib/python3.10/site-packages/ray/worker.py", line 9, in get\n', True, None),
        (
            '  File "/venv/verl/lib/python3.10/site-packages/trl/trainer/a.py", line 9, in get\n'
            '  File "/venv/verl/lib/python3.10/site-packages/trl/trainer/b.py", line 9, in get\n',
            False,
            "trl",
        ),
    ],
)
def test_what_is_installed(text: str, recorded: bool, expected: str | None) -> None:
    """The packages of an environment, and its name, yield to what the run itself shows."""
    events = read_log(text)
    found = find_framework(events, [], find_versions(events), recorded=recorded)
    assert (found.name if found else None) == expected


@pytest.mark.parametrize(
    "script",
    [
        "deepspeed train_bash.py --flash_attn True --bf16 True --save_steps 5 --lora_rank 8 --zero_stage 2",
        "torchrun pretrain_gpt.py --micro-batch-size 1 --global-batch-size 8 --sequence-parallel --save-interval 10",
    ],
)
def test_options_of_any_program(script: str) -> None:
    """A plain script with options that programs of many kinds take is of no framework."""
    settings, _ = read_configuration("run.sh", script)
    assert name_of([], settings) is None


def test_a_dump_names_the_framework() -> None:
    """A dump with many settings of one framework is that framework's; a few that it shares with others are not."""
    own = [s.spelled for s in load_table("openrlhf") if s.form == "flag"]
    assert name_of([], [make_setting(word, form="dump") for word in own]) == "openrlhf"
    assert name_of([], [make_setting(word, form="dump") for word in ("--bf16", "--zero_stage", "--max_len")]) is None
    paths = [s.spelled for s in load_table("verl") if s.form == "hydra" and s.spelled.startswith("actor_rollout_ref")]
    assert name_of([], [make_setting(word, form="dump", framework="verl") for word in paths[:6]]) == "verl"


def test_a_fork_needs_a_sign_of_its_own() -> None:
    """A spelling counts for every framework that has it; what verl and its forks share is no sign of a fork."""
    words = [s.spelled for s in load_table("simplerl") if {"verl", "simplerl"} <= set(claimants(s.spelled))]
    assert len(words) > 2
    found = find_framework([], [make_setting(word, framework="simplerl") for word in words], {})
    assert found is not None and found.name == "verl"
