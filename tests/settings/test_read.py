"""Launch scripts, YAML, DeepSpeed's JSON, and what logs show of a configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.settings.dump import parse_dump
from rlhfdoctor.settings.logged import parse_logged
from rlhfdoctor.settings.read import (
    is_configuration,
    parse_configuration,
    parse_document,
    parse_shell,
    read_configuration,
)
from rlhfdoctor.settings.written import interpret
from rlhfdoctor.types import Event, Gap, Origin, Setting, Value
from tests.build import make_event, read_kind


def read_shell(name: str, text: str, prefer: str | None = None) -> list[Setting]:
    """The settings of a script by one framework's table."""
    return interpret(parse_shell(name, text), prefer)


def read_document(name: str, text: str, prefer: str | None = None) -> list[Setting]:
    """The same for YAML and JSON."""
    return interpret(parse_document(name, text), prefer)


def read_logged(event: Event, prefer: str | None = None) -> list[Setting]:
    """The same for what a log line shows."""
    return interpret(parse_logged(event), prefer)


def read_dump(lines: tuple[str, ...], origin: Origin, prefer: str | None = None) -> list[Setting]:
    """The same for a printed configuration."""
    return interpret(parse_dump(lines, origin), prefer)


def shell(script: str, prefer: str | None = None) -> dict[str, Value]:
    """Value by spelling."""
    return {setting.spelled: setting.value for setting in read_shell("run.sh", script, prefer)}


def one(found: list[Setting], spelled: str) -> Setting:
    """The one setting of a spelling."""
    (setting,) = [setting for setting in found if setting.spelled == spelled]
    return setting


# --- shell -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("run --zero_stage 3", {"--zero_stage": 3}),
        ("run --zero_stage=3", {"--zero_stage": 3}),
        ("run --zero_stage='3'", {"--zero_stage": 3}),
        ("run --adam_offload", {"--adam_offload": True}),
        ("run --adam_offload --bf16", {"--adam_offload": True, "--bf16": True}),
        ("run --adam_offload \\\n  --bf16 \\\n", {"--adam_offload": True, "--bf16": True}),
        ("run --init_kl_coef -0.5", {"--init_kl_coef": -0.5}),
        ("run --top_k -1 --bf16", {"--top_k": -1, "--bf16": True}),
        ("run --lr 1e-6", {"--lr": 1e-6}),
        ("run --num 1_000_000", {"--num": 1000000}),
        ("run --flag true --other False", {"--flag": True, "--other": False}),
        ("run --none null", {"--none": None}),
        ("run --name 'a b'", {"--name": "a b"}),
        ('run --adam_offload "$@"', {"--adam_offload": True}),
        ('run --adam_offload "${MORE[@]}" --bf16', {"--adam_offload": True, "--bf16": True}),
        ("run --adam_offload >log", {"--adam_offload": True}),
        ("sh -c 'run --adam_offload' >log", {"--adam_offload": True}),
        ("sh -c 'run --num $1 --adam_offload' _ 8", {"--num": "$1", "--adam_offload": True}),
        ("sh -c 'run --bf16' -- --adam_offload", {"--bf16": True}),
        ('echo "run --bf16"; echo --bf16; run --num 3', {"--num": 3}),
        ('run --name ""', {"--name": None}),
        ("BS=4\nrun --bs ${BS}", {"--bs": 4}),
        ("run --a 1 # --b 2", {"--a": 1}),
        ("run --a\nrun2 3", {"--a": True}),
        ("run --a && 3", {"--a": True}),
        ("run --vllm-gpu-memory-utilization 0.5", {"--vllm-gpu-memory-utilization": 0.5}),
        ("run -x 1", {}),
        ("run --a=b=c", {"--a": "b=c"}),
        ("run --adam_offload data.train_batch_size=8", {"--adam_offload": True, "data.train_batch_size": 8}),
    ],
)
def test_flags(script: str, expected: dict[str, Value]) -> None:
    """Flags have their value behind a blank or an equals sign, or are switches."""
    assert shell(script) == expected


@pytest.mark.parametrize(
    ("word", "spelled", "value"),
    [
        ("data.train_batch_size=16", "data.train_batch_size", 16),
        ("+actor_rollout_ref.rollout.swap_space=4", "+actor_rollout_ref.rollout.swap_space", 4),
        ("++actor_rollout_ref.rollout.swap_space=4", "++actor_rollout_ref.rollout.swap_space", 4),
        ("actor_rollout_ref.model.path='Qwen/Qwen2.5-7B'", "actor_rollout_ref.model.path", "Qwen/Qwen2.5-7B"),
        (
            "'actor_rollout_ref.rollout.gpu_memory_utilization=0.6'",
            "actor_rollout_ref.rollout.gpu_memory_utilization",
            0.6,
        ),
        ('"trainer.logger=[console,wandb]"', "trainer.logger", "[console,wandb]"),
        ("trainer.logger=\"['console']\"", "trainer.logger", "['console']"),
        (
            "actor_rollout_ref.actor.fsdp_config.param_offload=False",
            "actor_rollout_ref.actor.fsdp_config.param_offload",
            False,
        ),
        ("data.val_files=", "data.val_files", None),
    ],
)
def test_hydra(word: str, spelled: str, value: Value) -> None:
    """Hydra overrides keep their plus, and lose their quotes."""
    (setting,) = read_shell("run.sh", f"python3 -m verl.trainer.main_ppo {word}")
    assert (setting.spelled, setting.value, setting.form) == (spelled, value, "hydra")


def test_plus_has_the_same_name() -> None:
    """A plus in front of an override does not change what is set."""
    plain, plus = (read_shell("r.sh", f"run {p}actor_rollout_ref.rollout.swap_space=4")[0] for p in ("", "+"))
    assert ("rollout.swap_space", plain.name, plain.framework) == (plus.name, plus.name, plus.framework)


SCRIPT = (
    "#!/bin/bash\n#SBATCH --mem=500G\n#SBATCH --job-name x\nexport RAY_memory_usage_threshold=0.98\n"
    "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nBS=4\n"
    "docker run -it --shm-size=10g -m 400g img bash -c true\n"
    "python3 -m openrlhf.cli.train_ppo_ray \\\n   --micro_train_batch_size ${BS} \\\n   --save_path './a b' \\\n"
    '   --vllm_gpu_memory_utilization=0.5 \\\n   --adam_offload \\\n   +data.max_prompt_length="1024"\n'
)
PLACES = [
    ("--mem", 2, "500G"),
    ("RAY_memory_usage_threshold", 4, "0.98"),
    ("PYTORCH_CUDA_ALLOC_CONF", 5, "expandable_segments:True"),
    ("--shm-size", 7, "10g"),
    ("-m", 7, "400g"),
    ("--micro_train_batch_size", 9, "${BS}"),
    ("--save_path", 10, "'./a b'"),
    ("--vllm_gpu_memory_utilization", 11, "0.5"),
    ("--adam_offload", 12, "--adam_offload"),
    ("+data.max_prompt_length", 13, '"1024"'),
]


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(("spelled", "line", "written"), PLACES)
def test_place_in_a_script(spelled: str, line: int, written: str, end: str) -> None:
    """A setting knows its line and the place of its value, so that it can be changed there."""
    script = SCRIPT.replace("\n", end)
    setting = one(list(read_shell("run.sh", script)), spelled)
    start, stop = setting.span or (0, 0)
    assert (setting.origin.line, script[start:stop]) == (line, written)


@pytest.mark.parametrize(
    ("command", "spelled", "name", "value"),
    [
        ("docker run -m 400g img", "-m", "container.memory", "400g"),
        ("docker run --memory=400g img", "--memory", "container.memory", "400g"),
        ("sudo docker run --memory 400g img", "--memory", "container.memory", "400g"),
        ("podman run --shm-size 10g img", "--shm-size", "container.shm_size", "10g"),
        ("docker run --memory-swap=-1 img", "--memory-swap", "container.memory_swap", -1),
    ],
)
def test_docker(command: str, spelled: str, name: str, value: Value) -> None:
    """Limits of `docker run` are settings of the container."""
    setting = one(list(read_shell("run.sh", command)), spelled)
    assert (setting.name, setting.framework, setting.value) == (name, "container", value)


@pytest.mark.parametrize("command", ["python -m verl.trainer.main_ppo", "python -m pdb run.py", "tmux -m 4"])
def test_m_of_other_programs(command: str) -> None:
    """`-m` of any other program is no limit of a container."""
    assert list(read_shell("run.sh", command)) == []


def test_docker_ends_with_its_command() -> None:
    """Behind the docker command `-m` is Python's again."""
    found = [s.value for s in read_shell("run.sh", "docker pull img\npython -m verl.trainer") if s.spelled == "-m"]
    assert found == []


def test_command_inside_docker_run() -> None:
    """Behind the image `-m` is that of the program in the container."""
    found = [s.value for s in read_shell("run.sh", "docker run -m 400g img python3 -m verl.trainer.main_ppo")]
    assert found == ["400g"]


@pytest.mark.parametrize("line", ["#SBATCH --mem=500G", "#SBATCH --mem 500G", "#SBATCH  --mem=500G\r"])
def test_sbatch(line: str) -> None:
    """Slurm's limit stands in a comment."""
    (setting,) = read_shell("job.sbatch", f"#!/bin/bash\n{line}\n")
    assert (
        setting.name,
        setting.value,
        setting.origin.line,
        setting.form,
    ) == ("container.memory", "500G", 2, "sbatch")


@pytest.mark.parametrize("line", ["#SBATCH --mem-per-cpu=4G", "# SBATCH --mem=4G", "##SBATCH --mem=4G"])
def test_no_sbatch(line: str) -> None:
    """Another option, or a comment that slurm passes over, is no limit of the job."""
    assert [s for s in read_shell("job.sbatch", f"{line}\n") if s.name == "container.memory"] == []


@pytest.mark.parametrize(
    "script",
    [
        "export RAY_memory_monitor_refresh_ms=0",
        "RAY_memory_monitor_refresh_ms=0 ray start --head",
        "env RAY_memory_monitor_refresh_ms=0 ray start",
        "docker run -e RAY_memory_monitor_refresh_ms=0 img",
        pytest.param("RAY_memory_monitor_refresh_ms=0", id="env file"),
    ],
)
def test_environment_of_ray(script: str) -> None:
    """Ray's environment variables are in small letters, and are settings all the same."""
    found = [(s.name, s.value, s.form) for s in read_shell("run.sh", script) if s.spelled.startswith("RAY_")]
    assert found == [("ray.memory_monitor_refresh", 0, "env")]


@pytest.mark.parametrize(
    "script",
    [
        "export NCCL_TIMEOUT=60",
        "NCCL_TIMEOUT=60 python x.py",
        "env NCCL_TIMEOUT=60 python x.py",
        "docker run -e NCCL_TIMEOUT=60 img",
        "docker run --env NCCL_TIMEOUT='60' img",
        "export A=1 NCCL_TIMEOUT=60",
    ],
)
def test_environment(script: str) -> None:
    """The environment is read however it is set."""
    found = [(s.value, s.form) for s in read_shell("run.sh", script) if s.spelled == "NCCL_TIMEOUT"]
    assert found == [(60, "env")]


@pytest.mark.parametrize("name", ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"])
def test_allocator_configuration(name: str) -> None:
    """The parts of the allocator's configuration are settings of their own."""
    found = shell(f"export {name}=expandable_segments:True,max_split_size_mb:128\n")
    assert found == {
        name: "expandable_segments:True,max_split_size_mb:128",
        f"{name}=expandable_segments": True,
        f"{name}=max_split_size_mb": 128,
    }


@pytest.mark.parametrize("part", ["expandable_segments", "max_split_size_mb"])
def test_allocator_parts_have_their_name(part: str) -> None:
    """A part has its canonical name under the older spelling of the variable."""
    found = list(read_shell("run.sh", f"PYTORCH_CUDA_ALLOC_CONF={part}:1 run"))
    assert one(found, f"PYTORCH_CUDA_ALLOC_CONF={part}").name == part


@pytest.mark.parametrize("part", ["expandable_segments", "max_split_size_mb"])
def test_allocator_parts_under_the_new_variable(part: str) -> None:
    """A part has its canonical name under the newer spelling of the variable too."""
    found = list(read_shell("run.sh", f"PYTORCH_ALLOC_CONF={part}:1 run"))
    assert one(found, f"PYTORCH_ALLOC_CONF={part}").name == part


def test_unknown_settings_are_kept() -> None:
    """What no table knows keeps its own name, and belongs to nobody."""
    (setting,) = read_shell("run.sh", "run --some-thing 4")
    assert (setting.name, setting.framework, setting.value) == ("some_thing", "", 4)


# --- YAML and JSON -----------------------------------------------------------------------------

YAML = """\
# EasyR1
data:
  max_prompt_length: 2048   # tokens
  path: "a b"
worker:
  actor:
    offload:
      offload_params: true
      other: 'no'
  rollout:
    gpu_memory_utilization: 0.6
    names: [a, b]
    empty:
    tilde: ~
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    ("spelled", "line", "written", "value"),
    [
        ("data.max_prompt_length", 3, "2048", 2048),
        ("data.path", 4, '"a b"', "a b"),
        ("worker.actor.offload.offload_params", 8, "true", True),
        ("worker.rollout.gpu_memory_utilization", 11, "0.6", 0.6),
        ("worker.rollout.tilde", 14, "~", None),
        ("worker.rollout.empty", 13, "", None),
    ],
)
def test_yaml(spelled: str, line: int, written: str, value: Value, end: str) -> None:
    """Every scalar of a YAML file has its path, line and the exact place of its value."""
    text = YAML.replace("\n", end)
    setting = one(list(read_document("config.yaml", text)), spelled)
    start, stop = setting.span or (-1, -1)
    assert (setting.origin.line, text[start:stop], setting.value) == (line, written, value)


def test_quoted_scalar_stays_text() -> None:
    """A quoted word is text, even where it looks like a number or a truth value."""
    assert one(list(read_document("config.yaml", YAML)), "worker.actor.offload.other").value == "no"


JSON = """{
\t"zero_optimization": {
\t\t"stage": 3,
\t\t"offload_optimizer": {"device": "cpu", "pin_memory": true},
\t\t"sub_group_size": 1e9
\t},
\t"train_micro_batch_size_per_gpu": "auto"
}
"""


@pytest.mark.parametrize(
    ("spelled", "line", "written", "value"),
    [
        ("zero_optimization.stage", 3, "3", 3),
        ("zero_optimization.offload_optimizer.device", 4, '"cpu"', "cpu"),
        ("zero_optimization.offload_optimizer.pin_memory", 4, "true", True),
        ("zero_optimization.sub_group_size", 5, "1e9", 1e9),
        ("train_micro_batch_size_per_gpu", 7, '"auto"', "auto"),
    ],
)
@pytest.mark.parametrize(
    "text", [JSON, JSON.replace("\t", "    "), JSON.replace("\n", "\r\n")], ids=["tabs", "blanks", "CRLF"]
)
def test_json(text: str, spelled: str, line: int, written: str, value: Value) -> None:
    """DeepSpeed's JSON is read with its places, indented by tabs or blanks."""
    setting = one(list(read_document("ds.json", text)), spelled)
    start, stop = setting.span or (-1, -1)
    assert (setting.origin.line, text[start:stop], setting.value, setting.form) == (line, written, value, "json")


@pytest.mark.parametrize("text", [JSON.replace("\n", "").replace("\t", " "), JSON], ids=["one line", "lines"])
def test_deepspeed_names(text: str) -> None:
    """DeepSpeed's keys have their canonical names."""
    names = {s.name: s.value for s in read_document("ds.json", text) if s.framework == "deepspeed"}
    assert (names["offload_optimizer.pin_memory"], names["offload_optimizer"]) == (True, "cpu")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "a: [1, 2\nb: }\n"),
        ("a.yaml", "a:\n\tb: 1\n"),
        ("a.json", '{"a": 1,\n "b": [}\n'),
        ("a.yml", "a: *unknown\n"),
        ("a.yaml", "a: {b: 1\n"),
    ],
)
def test_broken_document(name: str, text: str) -> None:
    """A broken document is a gap that names the line, and no crash."""
    settings, (gap,) = read_configuration(name, text)
    assert (settings, str(gap.what), str(gap.why).split(",")[0]) == ([], name, "no valid YAML or JSON")


def test_gap_names_the_line() -> None:
    """The gap of a broken document says where it breaks."""
    _, (gap,) = read_configuration("a.yaml", "ok: 1\nalso: 2\nbad: [1\nmore: 3\n")
    assert "line 4" in str(gap.why)


@pytest.mark.parametrize("text", ["", "# nothing\n", "- a\n- b\n", "just text\n", "42\n", "{}", "? [a]\n: b\n"])
def test_document_without_settings(text: str) -> None:
    """A document that is no mapping has no settings."""
    assert read_configuration("a.yaml", text) == ([], [])


def test_several_documents() -> None:
    """All documents of a Kubernetes file are read."""
    text = "a: 1\n---\nb: 2\n"
    assert [(s.spelled, s.origin.line) for s in read_document("a.yaml", text)] == [("a", 1), ("b", 3)]


def test_deeply_nested_document() -> None:
    """A document nested beyond all reason ends as a gap or as nothing, never as a crash."""
    settings, gaps = read_configuration("a.json", '{"a":' * 3000 + "1" + "}" * 3000)
    assert (settings, [str(gap.why).split(",")[0] for gap in gaps]) == ([], ["nested too deeply"])


def test_limit_of_a_pod() -> None:
    """The memory limit of a pod's container is a setting of the container."""
    text = "spec:\n  containers:\n  - name: a\n    resources:\n      limits:\n        memory: 64Gi\n"
    assert [(s.name, s.value) for s in read_document("pod.yaml", text) if s.framework == "container"] == [
        ("container.memory", "64Gi")
    ]


def test_aliases_are_read_once_each() -> None:
    """An anchor used twice gives the value under both paths."""
    found = {s.spelled: s.value for s in read_document("a.yaml", "x: &k\n  a: 1\ny: *k\n")}
    assert found == {"x.a": 1, "y.a": 1}


def test_merge_bomb_is_bounded() -> None:
    """Aliases of aliases do not multiply without end within the depth that is read."""
    text = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}\n" for i in range(1, 8))
    assert len(list(read_document("a.yaml", text))) == sum(2**i for i in range(8))


def test_merge_bomb_without_bounds() -> None:
    """Aliases that multiply beyond reason are a gap."""
    text = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}\n" for i in range(1, 30))
    settings, gaps = read_configuration("a.yaml", text)
    assert (settings, [str(gap.why).split(",")[0] for gap in gaps]) == ([], ["nested too deeply"])


# --- other files -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("run.sh", True),
        ("RUN.SH", True),
        ("a.yaml", True),
        ("ds.json", True),
        ("a.tar.gz!x/run.sbatch", True),
        ("a.env", True),
        ("train.py", True),
        ("run.log", False),
        ("a.json!run.log", False),
        ("sh", False),
    ],
)
def test_is_configuration(name: str, expected: bool) -> None:
    """The ending tells configuration from logs; of a member that of the member."""
    assert is_configuration(name) == expected


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("ray.init(object_store_memory=10 * 1024**3)", 10 * 1024**3),
        ("ray.init(object_store_memory=80_000_000_000, x=1)", 80_000_000_000),
        ("ray.init(object_store_memory=int(1.5e9))", 1_500_000_000),
        ("ray.init(object_store_memory=size)", "size"),
    ],
)
def test_python(line: str, value: Value) -> None:
    """Ray's object store as an argument in Python is read, with products and int() computed."""
    settings, gaps = read_configuration("train.py", f"import ray\n{line}\n")
    assert ([("ray.object_store_memory", value, 2)], []) == (
        [(s.name, s.value, s.origin.line) for s in settings],
        gaps,
    )


@pytest.mark.parametrize("name", ["setup.cfg", "pyproject.toml"])
def test_files_that_hold_no_settings(name: str) -> None:
    """Packaging files are configuration of something else."""
    assert read_configuration(name, "[a]\nb = 1\n") == ([], [])


# --- what logs show ----------------------------------------------------------------------------


def logged(line: str, kind: str, prefer: str | None = None) -> dict[str, Value]:
    """Value by spelling of a log line."""
    (event,) = read_kind(line, kind)
    return {setting.spelled: setting.value for setting in read_logged(event, prefer)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "[2025-02-18 09:14:22,204] [ERROR] [launch.py:324:sigkill_handler] ['/usr/bin/python3', '-u', 'run.py', '--local_rank=1', "
            "'--zero_stage', '3', '--offload', '--lr', '-1'] exits with return code = -9",
            {"--local_rank": 1, "--zero_stage": 3, "--offload": True, "--lr": -1},
        ),
        (
            "[2025-07-10 09:14:22,999] [INFO] [launch.py:256:main] process 7 spawned with command: ['python', 'x.py', '--bf16', '--bs', '4']",
            {"--bf16": True, "--bs": 4},
        ),
    ],
)
def test_logged_argv(line: str, expected: dict[str, Value]) -> None:
    """DeepSpeed's launcher logs the command line."""
    assert logged(line, "config.argv") == expected


def test_logged_overrides() -> None:
    """Hydra logs the overrides of a job that failed."""
    line = "Error executing job with overrides: ['algorithm.adv_estimator=grpo', 'data.train_batch_size=16', '+actor_rollout_ref.rollout.swap_space=4']"
    assert logged(line, "config.overrides") == {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": 16,
        "actor_rollout_ref.rollout.swap_space": 4,
    }


def test_logged_settings_cannot_be_patched() -> None:
    """What only a log shows has a line, and no place to change."""
    (event,) = read_kind("\nError executing job with overrides: ['data.train_batch_size=16']", "config.overrides")
    (setting,) = read_logged(event)
    assert (setting.form, setting.span, setting.origin.line) == ("argv", None, 2)


def test_other_events_show_no_settings() -> None:
    """Only events of configuration show settings."""
    assert list(read_logged(make_event("config.model_size", text="model: 7B"))) == []


DUMP = (
    "{'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,",
    "                                 'fsdp_config': {'optimizer_offload': True,",
    "                                                 'param_offload': False},",
    "                                 'ppo_micro_batch_size_per_gpu': 4},",
    "                       'rollout': {'free_cache_engine': True,",
    "                                   'gpu_memory_utilization': 0.6,",
    "                                   'name': 'vllm'}},",
    " 'data': {'max_prompt_length': 1024,",
    "          'train_batch_size': 16}}",
)
PATHS = {
    "actor_rollout_ref.actor.clip_ratio": 0.2,
    "actor_rollout_ref.actor.fsdp_config.optimizer_offload": True,
    "actor_rollout_ref.actor.fsdp_config.param_offload": False,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 4,
    "actor_rollout_ref.rollout.free_cache_engine": True,
    "actor_rollout_ref.rollout.gpu_memory_utilization": 0.6,
    "actor_rollout_ref.rollout.name": "vllm",
    "data.max_prompt_length": 1024,
    "data.train_batch_size": 16,
}


@pytest.mark.parametrize("prefix", ["", "(main_task pid=40817) ", "(TaskRunner pid=7, ip=10.0.0.1) "])
def test_dump(prefix: str) -> None:
    """The paths of a pretty-printed configuration are reported from its columns, with Ray's prefix or without."""
    found = read_dump(tuple(prefix + line for line in DUMP), Origin(file="run.log", line=10), "verl")
    assert {setting.spelled: setting.value for setting in found} == PATHS


def test_lines_of_a_dump() -> None:
    """An entry of a dump is on its own line of the log."""
    found = {s.spelled: s.origin.line for s in read_dump(DUMP, Origin(file="run.log", line=10), "verl")}
    assert (found["actor_rollout_ref.actor.clip_ratio"], found["data.train_batch_size"]) == (10, 18)


def test_dump_in_a_log() -> None:
    """The dump is read from the log's event with the lines behind it."""
    text = "".join(f"(main_task pid=7) {line}\n" for line in DUMP)
    (event,) = read_kind(text, "config.dump")
    assert {s.spelled: s.value for s in read_logged(event, "verl")} == PATHS


def test_dump_with_a_cut() -> None:
    """Behind a cut a key counts only where one setting of the framework ends in it."""
    lines = (
        "{'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,",
        "[...]",
        "    'free_cache_engine': True,",
        "    'bogus_key': 'x',",
    )
    found = {s.spelled: s.value for s in read_dump(lines, Origin(file="run.log", line=1), "verl")}
    assert found == {
        "actor_rollout_ref.actor.clip_ratio": 0.2,
        "actor_rollout_ref.rollout.free_cache_engine": True,
    }


def test_dump_with_a_cut_between_prefixed_lines() -> None:
    """The mark of a cut has no prefix; what is behind it is not taken for a part of what is above it."""
    lines = (
        "(main_task pid=7) {'actor_rollout_ref': {'actor': {'clip_ratio': 0.2,",
        "(main_task pid=7)                                  'fsdp_config': {'fsdp_size': -1,",
        "[...]",
        "(main_task pid=7)                                    'max_num_seqs': 64,",
        "(main_task pid=7)                                    'swap_space': 16,",
    )
    found = {s.name: s.value for s in read_dump(lines, Origin(file="run.log", line=1), "verl")}
    assert (found["rollout.max_num_seqs"], found["rollout.swap_space"]) == (64, 16)


def test_dump_entry_names() -> None:
    """Entries of a dump have canonical names and the form `dump`."""
    found = [(s.name, s.form, s.span) for s in read_dump(DUMP, Origin(file="run.log"), "verl") if s.value == 0.6]
    assert found == [("rollout.gpu_memory_utilization", "dump", None)]


def test_gap_type() -> None:
    """A configuration without faults leaves no gap."""
    gaps: list[Gap] = read_configuration("run.sh", SCRIPT)[1]
    assert gaps == []


def test_a_framework_is_found_in_one_reading(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each file is parsed once, though the framework that they show decides what their settings mean."""
    import rlhfdoctor.core.session as session

    calls: list[str] = []
    parse = session.parse_configuration

    def counted(name: str, text: str) -> object:
        calls.append(name)
        return parse(name, text)

    monkeypatch.setattr(session, "parse_configuration", counted)
    (tmp_path / "a.yaml").write_text("actor_rollout_ref:\n  rollout:\n    gpu_memory_utilization: 0.5\n")
    (tmp_path / "b.sh").write_text(
        "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.use_kl_loss=True data.max_prompt_length=512\n"
    )
    incident = analyze([str(tmp_path)])
    assert incident.framework is not None and incident.framework.name == "verl"
    assert sorted(calls) == [str(tmp_path / "a.yaml"), str(tmp_path / "b.sh")]


def test_script_of_too_many_settings() -> None:
    """No launch script has so many; what is kept of one is bounded."""
    found, gaps = parse_configuration("a.sh", "python train.py " + "--x 1 " * 20_001)
    assert not found
    assert ["more than 20,000 settings" in str(gap.why) for gap in gaps] == [True]
