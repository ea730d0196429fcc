"""Settings that logs show: every form of dump, command and variable, as people's logs and replies bear them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.core.session import Session
from rlhfdoctor.i18n.message import ENGLISH
from rlhfdoctor.report.next_step import next_step
from rlhfdoctor.settings.force import find_differences, in_force, is_same
from rlhfdoctor.settings.logged import parse_every_logged, parse_logged
from rlhfdoctor.settings.written import interpret
from rlhfdoctor.types import Gap, Setting, Value
from rlhfdoctor.vocabulary import EVENT
from tests.build import make_setting, read_log

KINDS = (EVENT.config.dump, EVENT.config.command, EVENT.config.variable)


def settings_of(text: str, prefer: str | None = None, gaps: list[Gap] | None = None) -> list[Setting]:
    """The settings of a log given as text."""
    events = [event for event in read_log(text) if event.kind in KINDS]
    return interpret((written for event in events for written in parse_logged(event, gaps)), prefer)


def values_of(text: str, prefer: str | None = None) -> dict[str, Value]:
    """Value by canonical name; the first mention of each."""
    found: dict[str, Value] = {}
    for setting in settings_of(text, prefer):
        found.setdefault(setting.name, setting.value)
    return found


VERL = """\
{'actor_rollout_ref': {'actor': {'checkpoint': {'contents': ['model',
                                                             'optimizer']},
                                 'fsdp_config': {'fsdp_size': -1,
                                                 'optimizer_offload': True,
                                                 'param_offload': False}},
                       'rollout': {'enforce_eager': False,
                                   'gpu_memory_utilization': 0.55,
                                   'swap_space': 4}},
 'data': {'train_batch_size': 192}}"""
OPENRLHF = (
    "Namespace(actor_num_nodes=1, zero_stage=3, adam_offload=True, micro_train_batch_size=2, ref_reward_offload=False, "
    "pretrain='/models/a, b', target_modules=['q', 'v'], vllm_num_engines=4, vllm_gpu_memory_utilization=0.6, lr=1e-06)"
)
TRL = """\
GRPOConfig(
_n_gpu=1,
accelerator_config={'split_batches': False, 'dispatch_batches': None},
bf16=True,
deepspeed=None,
gradient_checkpointing=False,
max_prompt_length=1536,
per_device_train_batch_size=6,
save_strategy=SaveStrategy.STEPS,
vllm_mode=colocate,
)"""
SGLANG = "[2026-02-01 10:00:00] server_args=ServerArgs(model_path='/m/7b', mem_fraction_static=0.62, tp_size=2)"
VLLM = (
    "INFO 03-25 10:01:02 [core.py:53] Initializing a V1 LLM engine (v0.8.2) with config: model='/m/7b', "
    "speculative_config=None, dtype=torch.bfloat16, max_seq_len=6144, enforce_eager=True, "
    "decoding_config=DecodingConfig(guided_decoding_backend='auto'), kv_cache_dtype=auto, "
    'compilation_config={"splitting_ops":[],"level":3}'
)
VLLM_ARGS = "INFO 08-14 09:00:11 [utils.py:253] non-default args: {'model': '/m/7b', 'gpu_memory_utilization': 0.35, 'swap_space': 8}"
VLLM_SERVER = (
    "INFO 10-01 09:00:11 api_server.py:528] vLLM API server args: Namespace(host=None, max_num_seqs=96, seed=0)"
)
DEEPSPEED = """\
[2025-02-18 09:14:22,204] [INFO] [config.py:994:print_user_config]   json = {
    "train_micro_batch_size_per_gpu": 2,
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {
            "device": "cpu",
            "pin_memory": true
        },
        "sub_group_size": 1.000000e+08
    },
    "bf16": {
        "enabled": true
    }
}"""
DEEPSPEED_TABLE = """\
[2025-02-18 09:14:22,204] [INFO] [config.py:1003:print] DeepSpeedEngine configuration:
[2025-02-18 09:14:22,204] [INFO] [config.py:1007:print]   activation_checkpointing_config  {
[2025-02-18 09:14:22,205] [INFO] [config.py:1007:print]   gradient_clipping ............ 1.0
[2025-02-18 09:14:22,205] [INFO] [config.py:1007:print]   zero_config .................. stage=3 overlap_comm=False \
offload_optimizer=DeepSpeedZeroOffloadOptimizerConfig(device=<OffloadDeviceEnum.cpu: 'cpu'>, pin_memory=True) sub_group_size=100
[2025-02-18 09:14:22,205] [INFO] [config.py:1007:print]   zero_enabled ................. True"""
COMMAND = (
    "+ python3 -m verl.trainer.main_ppo data.train_batch_size=192 \\\n"
    "    actor_rollout_ref.rollout.gpu_memory_utilization=0.55 'trainer.logger=[\"console\"]'"
)
MEGATRON = """\
------------------------ arguments ------------------------
  accumulate_allreduce_grads_in_fp32 .............. True
  actor_num_gpus_per_node ......................... 8
  micro_batch_size ................................ 3
  optimizer_cpu_offload ........................... True
-------------------- end of arguments ---------------------"""

FORMS = {
    "verl": (
        VERL,
        "verl",
        {"offload_optimizer": True, "offload_param": False, "rollout.gpu_memory_utilization": 0.55},
    ),
    "openrlhf": (OPENRLHF, "openrlhf", {"zero_stage": 3, "offload_optimizer": True, "pretrain": "/models/a, b"}),
    "trl": (TRL, "trl", {"gradient_checkpointing": False, "max_prompt_length": 1536, "train.micro_batch_size": 6}),
    "sglang": (SGLANG, "slime", {"rollout.gpu_memory_utilization": 0.62}),
    "vllm": (VLLM, None, {"rollout.max_model_len": 6144, "rollout.enforce_eager": True, "model": "/m/7b"}),
    "vllm arguments": (VLLM_ARGS, None, {"rollout.gpu_memory_utilization": 0.35, "rollout.swap_space": 8}),
    "vllm server": (VLLM_SERVER, None, {"rollout.max_num_seqs": 96}),
    "deepspeed": (DEEPSPEED, None, {"zero_stage": 3, "offload_optimizer.pin_memory": True}),
    "deepspeed table": (DEEPSPEED_TABLE, None, {"zero_stage": 3, "offload_optimizer.pin_memory": True}),
    "megatron": (MEGATRON, "slime", {"actor_num_gpus_per_node": 8, "train.micro_batch_size": 3}),
    "command": (COMMAND, "verl", {"rollout.batch_size": 192, "rollout.gpu_memory_utilization": 0.55}),
}


def each_line(change: Callable[[str], str]) -> Callable[[str], str]:
    """A change of every line."""
    return lambda text: "\n".join(change(line) for line in text.split("\n"))


def interleaved(text: str) -> str:
    """Other workers and the driver write between the lines."""
    others = [
        "(WorkerDict pid=9, ip=10.0.0.3) step 4 {'loss': 0.25, 'epoch': 1}",
        "2026-01-05 10:00:00,001 INFO worker.py:1843 -- Connected to Ray cluster.",
    ]
    first, *rest = [f"(main_task pid=7) {line}" for line in text.split("\n")]
    return "\n".join([first, others[0], *(line for pair in ((r, others[1]) for r in rest) for line in pair)])


DECORATIONS = {
    "plain": each_line(str),
    "ray": each_line(lambda line: f"(main_task pid=123) {line}"),
    "ray with address": each_line(lambda line: f"(TaskRunner pid=1, ip=10.0.0.1) {line}"),
    "torchrun": each_line(lambda line: f"[default0]:{line}"),
    "reply": each_line(lambda line: f"> {line}"),
    "reply to a reply": each_line(lambda line: f"> > {line}"),
    "framed": each_line(lambda line: f"│ {line}"),
    "indented": each_line(lambda line: f"    {line}"),
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "interleaved": interleaved,
    "behind other lines": lambda text: "starting\nall well\n" + text + "\nstep:1 - loss:0.5\n",
}


@pytest.mark.parametrize("decoration", DECORATIONS)
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, decoration: str) -> None:
    """Each form is read whatever people and programs put before its lines."""
    text, prefer, expected = FORMS[form]
    found = values_of(DECORATIONS[decoration](text), prefer)
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("form", ["verl", "openrlhf", "trl", "vllm arguments", "command"])
def test_full_width(form: str) -> None:
    """The signs of a Chinese input method are read like the plain ones."""
    text, prefer, expected = FORMS[form]
    wide = text.replace(",", "，").replace("=", "＝").replace("': ", "'： ")
    found = values_of(wide if form not in ("trl", "command") else text.replace("=", "＝"), prefer)
    wanted = {name: value for name, value in expected.items() if name != "pretrain"}
    assert {name: found.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("width", [60, 80, 100])
def test_wrapped_by_a_terminal(width: int) -> None:
    """A long line that a screen's width has cut is put together again, also within a word."""
    wrapped = "\n".join(OPENRLHF[i : i + width] for i in range(0, len(OPENRLHF), width))
    found = values_of(wrapped, "openrlhf")
    assert (found["offload_optimizer"], found["rollout.gpu_memory_utilization"]) == (True, 0.6)


@pytest.mark.parametrize("form", FORMS)
def test_origin(form: str) -> None:
    """Each setting has the file and the line of the log on which it is, and no place to edit."""
    text, prefer, _ = FORMS[form]
    lines = text.split("\n")
    for setting in settings_of("first\n\n" + text, prefer):
        key = "seq_len" if setting.spelled == "--max-model-len" else re.split(r"[.=-]", setting.spelled)[-1]
        assert (setting.origin.file, setting.span) == ("run.log", None)
        assert setting.origin.line is not None and key in lines[setting.origin.line - 3]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("\n".join(VERL.split("\n")[:5]), 4),
        (OPENRLHF[:150], 6),
        (OPENRLHF[: OPENRLHF.index("0.6,") + 2], 8),
        ("Namespace(zero_stage=3, ..., adam_offload=True)", 2),
        ("\n".join(TRL.split("\n")[:6]), 6),
        ("\n".join(DEEPSPEED.split("\n")[:4]), 2),
        ("\n".join(MEGATRON.split("\n")[:3]), 2),
    ],
)
def test_cut(text: str, count: int) -> None:
    """A dump that breaks off gives what it has, and it is said that a part is missing."""
    gaps: list[Gap] = []
    found = settings_of(text, None, gaps)
    assert len(found) == count
    assert [ENGLISH(gap.why) for gap in gaps] == [
        f"the configuration printed there is not whole; {count} settings of it read"
    ]


@pytest.mark.parametrize("form", [form for form in FORMS if form not in ("command", "sglang")])
def test_whole_dumps_leave_no_gap(form: str) -> None:
    """Nothing is said to be missing of a dump that is whole."""
    gaps: list[Gap] = []
    settings_of(FORMS[form][0] + "\nafterwards", None, gaps)
    assert gaps == []


@pytest.mark.parametrize(
    "text",
    [
        "If reserved but unallocated memory is large try setting\nPYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.",
        "    training_args = PPOConfig(\n                    ^^^^^^^^^^",
        "usage: train.py [-h] [--zero_stage ZERO_STAGE]",
        "the run died after python train.py",
        "To change it, set RAY_memory_usage_threshold=0.9",
        "SimpleNamespace()",
    ],
)
def test_no_settings(text: str) -> None:
    """Advice, code and help show no settings."""
    assert values_of(text) == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("export RAY_memory_usage_threshold=0.97", {"ray.memory_usage_threshold": 0.97}),
        ("+ export RAY_memory_usage_threshold=0.97", {"ray.memory_usage_threshold": 0.97}),
        ('declare -x RAY_memory_usage_threshold="0.97"', {"ray.memory_usage_threshold": 0.97}),
        ("RAY_memory_usage_threshold=0.97", {"ray.memory_usage_threshold": 0.97}),
        ("> RAY_memory_usage_threshold=0.97", {"ray.memory_usage_threshold": 0.97}),
        (
            "(main pid=4) runtime_env: {'env_vars': {'RAY_memory_usage_threshold': '0.97'}}",
            {"ray.memory_usage_threshold": 0.97},
        ),
        (
            '{"env_vars": {"NCCL_DEBUG": "INFO", "RAY_memory_usage_threshold": "0.97"}}',
            {"ray.memory_usage_threshold": 0.97},
        ),
        ("n1:41:41 [0] NCCL INFO NCCL_CUMEM_ENABLE set by environment to 0.", {"NCCL_CUMEM_ENABLE": 0}),
    ],
)
def test_variables(line: str, expected: dict[str, Value]) -> None:
    """Variables as shells, Ray and NCCL show them."""
    found = values_of(line)
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    "before",
    [
        "+ ",
        "++ ",
        "$ ",
        "(env) u@node:~/run$ ",
        "root@node:/w# ",
        "> ",
        "nohup ",
        "CUDA_VISIBLE_DEVICES=0,1 ",
        "cmd = ",
        "",
    ],
)
@pytest.mark.parametrize(
    "program", ["python3 -m x.train", "/opt/bin/python -u train.py", "torchrun t.py", "deepspeed t.py"]
)
def test_commands(before: str, program: str) -> None:
    """Commands behind prompts, traces of the shell and wrappers."""
    found = values_of(f"{before}{program} --zero_stage 3 —adam_offload\nstarted\n", "openrlhf")
    assert (found["zero_stage"], found["offload_optimizer"]) == (3, True)


def test_repeated_dumps_are_bounded() -> None:
    """A log that prints its configuration again and again keeps a bounded number of lines behind each."""
    events = [e for e in read_log((TRL + "\n") * 3000) if e.kind == EVENT.config.dump]
    assert sum(bool(event.after) for event in events) <= 32


def write(folder: Path, log: str, script: str = "") -> list[str]:
    """A folder with a log and a launch script."""
    (folder / "run.log").write_text(log)
    (folder / "launch.sh").write_text(script or "echo")
    return [str(folder)]


def test_the_log_is_what_ran(tmp_path: Path) -> None:
    """Of a value that differs the log's is in force, and both are kept for the report."""
    script = "python3 -m openrlhf.cli.train_ppo_ray --zero_stage 2 --micro_train_batch_size 8 --bf16\n"
    with Session(write(tmp_path, f"(train pid=1) {OPENRLHF}\n", script)) as session:
        case = session.case
    assert case.value("zero_stage") == 3 and case.value("train.micro_batch_size") == 2
    planned = case.in_force(files_first=True)
    assert planned["zero_stage"].value == 2
    found = find_differences(case.settings)
    assert {d.own.spelled: (d.own.value, d.logged.value) for d in found.settings} == {
        "--zero_stage": (2, 3),
        "--micro_train_batch_size": (8, 2),
    }
    assert str(found.settings[0].logged.origin).endswith("run.log:1")


def test_the_threshold_that_ray_prints_is_the_one_to_raise(tmp_path: Path) -> None:
    """Without any configuration Ray's own line has the value that ran, so its default is not what is in force."""
    said = "Memory on the node (IP: 10.0.0.5, ID: 01) where the task (actor ID: ab, name=W.__init__, pid=47, memory "
    used = "used=12.10GB) was running was 51.35GB / 62.70GB (0.819), which exceeds the memory usage threshold of 0.8"
    incident = analyze(write(tmp_path, said + used + ". Ray killed this worker (ID: 99).\n"))
    finding = incident.findings[0]
    assert finding.cause == "host-ray-threshold"
    cure = next(patch for patch in finding.patches if not patch.published)
    assert (cure.spelled, cure.before, cure.after) == ("RAY_memory_usage_threshold", "0.8", "0.95")
    assert "RAY_memory_usage_threshold" in str(next_step(incident))


@pytest.mark.parametrize(
    ("own", "logged", "same"),
    [
        (1e-6, 1e-06, True),
        ("1e-6", "1e-6", True),
        (True, "true", True),
        (None, None, True),
        ("m/7b", "/data/m/7b", True),
        ("['a', 'b']", '["a","b"]', True),
        (2, 3, False),
        (True, 1, False),
        ("a", "b", False),
        ("", "b", False),
    ],
)
def test_same(own: Value, logged: Value, same: bool) -> None:
    """Spellings of one value are no difference."""
    assert is_same(own, logged) is same


@pytest.mark.parametrize("value", ["$STAGE", "${model.path}", "auto"])
def test_open_values_are_no_difference(value: str) -> None:
    """A file that leaves a value to something else does not contradict the log."""
    rows = [make_setting("--x", value), make_setting("--x", 3, form="dump", file="run.log")]
    assert find_differences(rows).settings == ()
    assert in_force(rows)["x"].value == 3


def test_a_library_does_not_overrule_the_framework() -> None:
    """vLLM's own print of one engine is no evidence against the framework's setting of that name."""
    rows = [
        make_setting("--vllm_swap", 4, name="rollout.swap_space"),
        make_setting("--swap-space", 9, name="rollout.swap_space", form="dump", framework="vllm"),
    ]
    assert in_force(rows)["rollout.swap_space"].value == 4
    assert find_differences(rows).compared_count == 0


def test_nothing_that_a_log_leaves_open_overrules() -> None:
    """None in a dump is a value that was not decided yet."""
    rows = [make_setting("--x", 3), make_setting("--x", None, form="dump")]
    assert in_force(rows)["x"].value == 3


def test_commands_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read as words of a shell is bounded over all logs; a gap counts what was passed over."""
    monkeypatch.setattr("rlhfdoctor.settings.logged._MOST_LETTERS", 200)
    events = read_log("+ python3 -m verl.trainer.main_ppo data.train_batch_size=256\n" + "+ python3 a.py --x 1\n" * 100)
    gaps: list[Gap] = []
    written = parse_every_logged(events, gaps)
    assert "data.train_batch_size" in {one.spelled for one in written}
    assert sum("were 200 bytes" in str(gap.why) or "not looked at" in str(gap.why) for gap in gaps) == 1
