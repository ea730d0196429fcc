"""Flags, switches, overrides and environment variables of launch scripts."""

from __future__ import annotations

from typing import Any

import pytest

from rlhfdoctor.engine.schema import Target
from rlhfdoctor.types import Framework

from .build import DOTTED, OPENRLHF, VERL, patched, plan, value_of

HEAD = '#!/bin/bash\n# 7B on one node, don\'t touch "zero"\nset -x\n'


def script(*flags: str, end: str = "\n", eol: str = "\n", head: str = HEAD) -> str:
    """A launch script with one flag on each line."""
    lines = " \\\n   ".join(("python3 -m openrlhf.cli.train_ppo_ray", *flags))
    return (head + lines + end).replace("\n", eol)


def hydra(*overrides: str, end: str = "\n", eol: str = "\n") -> str:
    """A launch script of verl with one override on each line."""
    lines = " \\\n    ".join(("python3 -m verl.trainer.main_ppo", *overrides))
    return (HEAD + lines + end).replace("\n", eol)


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("--micro_train_batch_size 8", "--micro_train_batch_size 4"),
        ("--micro_train_batch_size=8", "--micro_train_batch_size=4"),
        ("--micro_train_batch_size  8", "--micro_train_batch_size  4"),
        ('--micro_train_batch_size "8"', '--micro_train_batch_size "4"'),
        ("--micro_train_batch_size '8'", "--micro_train_batch_size '4'"),
        ('--micro_train_batch_size="8"', '--micro_train_batch_size="4"'),
        ('"--micro_train_batch_size=8"', '"--micro_train_batch_size=4"'),
        ("'--micro_train_batch_size=8'", "'--micro_train_batch_size=4'"),
        ("--micro_train_batch_size \\\n     8", "--micro_train_batch_size \\\n     4"),
        ("--micro_train_batch_size ${BS:-8}", "--micro_train_batch_size 4"),
    ],
)
@pytest.mark.parametrize(
    "around",
    [
        lambda word: script("--zero_stage 3", word, "--bf16"),
        lambda word: script("--zero_stage 3", word),
        lambda word: script(word, "--bf16 # all of it", end=""),
        lambda word: script(f"--zero_stage 3 {word} --bf16 2>&1 | tee log.txt"),
    ],
    ids=["middle", "last", "first", "same-line"],
)
def test_value_of_a_flag_is_replaced_where_it_stands(around: Any, before: str, after: str, eol: str) -> None:
    """Only the value changes; quotes, equals sign, comments, continuations and line ends stay."""
    text, expected = around(before).replace("\n", eol), around(after).replace("\n", eol)
    result = patched("launch.sh", text, "train.micro_batch_size", 4, framework=OPENRLHF)
    assert expected == result
    assert value_of("launch.sh", result, "train.micro_batch_size", OPENRLHF) == 4


@pytest.mark.parametrize("quote", ['"', "'"])
def test_quoted_command_of_a_shell(quote: str) -> None:
    """What srun's `bash -c` is given in quotes: values change in place, and what is new stays inside of the quotes."""
    around = f"{HEAD}srun -N1 bash -c \\\n{quote}pip install x \\\n&& python3 -m openrlhf.cli.train_ppo_ray \\\n    --zero_stage 3 \\\n    {{}}{quote} &>> log\n"
    text = around.format("--micro_train_batch_size 8")
    assert around.format("--micro_train_batch_size 4") == patched(
        "launch.sh", text, "train.micro_batch_size", 4, framework=OPENRLHF
    )
    added = patched("launch.sh", text, "gradient_checkpointing", True, add=True, framework=OPENRLHF)
    assert added == around.format("--micro_train_batch_size 8 \\\n    --gradient_checkpointing")
    exported = patched("launch.sh", text, "ray.memory_usage_threshold", 0.98, add=True, framework=OPENRLHF)
    assert exported == text.replace("srun", "export RAY_memory_usage_threshold=0.98\nsrun"), (
        "before the command that is quoted, not inside of it"
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('--micro_train_batch_size \\"8\\"', '--micro_train_batch_size \\"4\\"'),
        ('--micro_train_batch_size=\\"8\\"', '--micro_train_batch_size=\\"4\\"'),
        ('\\"--micro_train_batch_size=8\\"', '\\"--micro_train_batch_size=4\\"'),
        ("--micro_train_batch_size '8'", "--micro_train_batch_size '4'"),
        ("--micro_train_batch_size \\$BS", "--micro_train_batch_size 4"),
    ],
)
def test_quotes_in_a_quoted_command(before: str, after: str) -> None:
    """Escaped quotes stay a pair, so that the shell still finds their end."""
    around = 'docker exec it bash -c "python3 -m openrlhf.cli.train_ppo_ray {} --zero_stage 3"\n'
    assert patched(
        "launch.sh", around.format(before), "train.micro_batch_size", 4, framework=OPENRLHF
    ) == around.format(after)


def test_no_export_for_another_machine() -> None:
    """docker exec, ssh and kubectl do not hand on what this shell exports."""
    text = "docker exec it bash -c 'python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3'\n"
    patch = plan("launch.sh", text, "ray.memory_usage_threshold", 0.98, add=True, framework=OPENRLHF)
    assert patch is None or not patch.diff


@pytest.mark.parametrize("quote", ['"', "'"])
@pytest.mark.parametrize("eol", [" \\\n    ", "\n    ", " "])
def test_list_of_words_in_a_variable(quote: str, eol: str) -> None:
    """`ARGS="..."; run $ARGS`: values change where the list is set, and what is new never needs a backslash that would be a word."""
    around = f"{HEAD}ARGS={quote}--zero_stage 3{eol}{{}}{quote}\npython3 -m openrlhf.cli.train_ppo_ray $ARGS\n"
    text = around.format("--micro_train_batch_size 8")
    assert around.format("--micro_train_batch_size 4") == patched(
        "launch.sh", text, "train.micro_batch_size", 4, framework=OPENRLHF
    )
    added = patched("launch.sh", text, "gradient_checkpointing", True, add=True, framework=OPENRLHF)
    joint = eol if "\\" in eol else " "
    assert added == around.format(f"--micro_train_batch_size 8{joint}--gradient_checkpointing")


@pytest.mark.parametrize("written", ["$BS", "${BS}", '"$BS"', '"${BS}"'])
def test_value_from_a_variable_is_replaced_at_its_use(written: str) -> None:
    """The variable may serve other flags too, so its assignment stays."""
    quote = '"' if '"' in written else ""
    head = f"{HEAD}BS=8\n"
    text = script(f"--micro_train_batch_size {written}", "--micro_rollout_batch_size $BS", head=head)
    expected = script(f"--micro_train_batch_size {quote}4{quote}", "--micro_rollout_batch_size $BS", head=head)
    result = patched("launch.sh", text, "train.micro_batch_size", Target(scale=0.5), framework=OPENRLHF)
    assert expected == result
    assert value_of("launch.sh", result, "logprob.micro_batch_size", OPENRLHF) == 8


def test_flag_in_a_comment_is_not_the_setting() -> None:
    """What is commented out is neither read nor changed."""
    text = script("--micro_train_batch_size 8", "--bf16", end="\n# --micro_train_batch_size 16\n")
    expected = text.replace("size 8", "size 4")
    assert expected == patched("launch.sh", text, "train.micro_batch_size", Target(scale=0.5), framework=OPENRLHF)


def test_the_last_of_two_flags_is_changed() -> None:
    """argparse takes the last one, so that one is in force."""
    text = script("--micro_train_batch_size 16", "--micro_train_batch_size 8")
    expected = text.replace("size 8", "size 4")
    assert expected == patched("launch.sh", text, "train.micro_batch_size", 4, framework=OPENRLHF)


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (script("--zero_stage 3", "--adam_offload", "--bf16"), script("--zero_stage 3", "--bf16")),
        (script("--adam_offload", "--zero_stage 3"), script("--zero_stage 3")),
        (script("--zero_stage 3 --adam_offload --bf16"), script("--zero_stage 3 --bf16")),
        (script("--zero_stage 3", "--adam_offload --bf16"), script("--zero_stage 3", "--bf16")),
    ],
    ids=["own-line", "first-line", "one-line", "shared-line"],
)
def test_switch_is_removed(before: str, after: str, eol: str) -> None:
    """A switch goes with its own line, or with the space behind it."""
    text, expected = before.replace("\n", eol), after.replace("\n", eol)
    result = patched("launch.sh", text, "offload_optimizer", False, framework=OPENRLHF)
    assert expected == result
    assert value_of("launch.sh", result, "offload_optimizer", OPENRLHF) is None


@pytest.mark.parametrize(
    ("eol", "end"),
    [
        ("\n", "\n"),
        ("\n", "\necho done\n"),
        ("\n", " # Adam on the CPU\n"),
        ("\r\n", "\r\necho done\r\n"),
    ],
    ids=["last", "more-behind", "comment", "crlf"],
)
def test_switch_at_the_end_takes_the_continuation_before_it(eol: str, end: str) -> None:
    """The command still ends where it ended: the next line does not become part of it."""
    text = script("--zero_stage 3", "--adam_offload").replace("\n", eol)[: -len(eol)] + end
    result = patched("launch.sh", text, "offload_optimizer", False, framework=OPENRLHF)
    assert value_of("launch.sh", result, "offload_optimizer", OPENRLHF) is None
    assert value_of("launch.sh", result, "zero_stage", OPENRLHF) == 3
    expected = script("--zero_stage 3").replace("\n", eol)[: -len(eol)] + end
    in_place = script("--zero_stage 3", "").replace("\n", eol)[: -len(eol)] + end[1:]
    assert result in (expected, in_place)


def test_switch_at_the_very_end_of_a_file_without_newline() -> None:
    """The command ends with the flag before."""
    text = script("--zero_stage 3", "--adam_offload", end="")
    result = patched("launch.sh", text, "offload_optimizer", False, framework=OPENRLHF)
    assert script("--zero_stage 3", end="") == result.rstrip("\n")


@pytest.mark.parametrize("behind", ["> train.log", "2>&1 | tee train.log", "&> log", "< /dev/null", "| tee log", "&"])
def test_switch_before_a_redirection_is_on(behind: str) -> None:
    """The file of a redirection is no value of the switch before it."""
    text = script("--zero_stage 3", f"--adam_offload {behind}")
    assert value_of("launch.sh", text, "offload_optimizer", OPENRLHF) is True


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (script("--zero_stage 3"), script("--zero_stage 3", "--grad_accum_dtype bf16")),
        (script("--zero_stage 3", end=""), script("--zero_stage 3", "--grad_accum_dtype bf16", end="")),
        (script("--zero_stage 3 \\\n"), script("--zero_stage 3", "--grad_accum_dtype bf16 \\\n")),
        (script("--zero_stage 3 # s"), script("--zero_stage 3", "--grad_accum_dtype bf16 # s")),
        (
            script("--bf16", "--zero_stage 3", '"$@"'),
            script("--bf16", "--zero_stage 3", "--grad_accum_dtype bf16", '"$@"'),
        ),
        (script("--zero_stage 3 2>&1 | tee l"), script("--zero_stage 3", "--grad_accum_dtype bf16 2>&1 | tee l")),
        (script("--bf16 | tee l"), script("--bf16", "--grad_accum_dtype bf16 | tee l")),
        (script("--bf16 2>&1 | tee l"), script("--bf16", "--grad_accum_dtype bf16 2>&1 | tee l")),
        (script("--bf16 > log"), script("--bf16", "--grad_accum_dtype bf16 > log")),
        (
            "python3 train_ppo_ray.py --zero_stage 3 | tee l\n",
            "python3 train_ppo_ray.py --zero_stage 3 --grad_accum_dtype bf16 | tee l\n",
        ),
    ],
    ids=[
        "last",
        "no-newline",
        "trailing-continuation",
        "comment",
        "all-behind",
        "redirected",
        "piped",
        "switch-redirected",
        "switch-to-file",
        "one-line",
    ],
)
def test_flag_is_added_behind_the_last_one_known(before: str, after: str, eol: str) -> None:
    """A new flag gets a line of its own where the others have one, before pipes and "$@"."""
    text, expected = before.replace("\n", eol), after.replace("\n", eol)
    result = patched("launch.sh", text, "grad_accum_dtype", "bf16", add=True, framework=OPENRLHF)
    assert expected == result
    assert value_of("launch.sh", result, "grad_accum_dtype", OPENRLHF) == "bf16"


def test_added_switch_is_the_bare_word() -> None:
    """A switch takes no value."""
    text = script("--zero_stage 3", "--bf16")
    result = patched("launch.sh", text, "gradient_checkpointing", True, add=True, framework=OPENRLHF)
    assert script("--zero_stage 3", "--bf16", "--gradient_checkpointing") == result


def test_added_flag_has_the_spelling_of_the_version() -> None:
    """From OpenRLHF 0.10.2 on the flags have dotted names."""
    text = script("--ds.zero_stage 3", "--ds.adam_offload")
    expected = script("--ds.zero_stage 3", "--ds.adam_offload", "--ds.grad_accum_dtype bf16")
    assert expected == patched("launch.sh", text, "grad_accum_dtype", "bf16", add=True, framework=DOTTED)


@pytest.mark.parametrize("version", ["0.5.3", "0.5.7"])
def test_flag_that_the_version_lacks_is_not_added(version: str) -> None:
    """OpenRLHF has --vllm_enable_sleep from 0.5.8 on."""
    text = script("--zero_stage 3", "--vllm_num_engines 2")
    framework = Framework(name="openrlhf", version=version)
    patch = plan("launch.sh", text, "rollout.sleep", True, add=True, framework=framework)
    assert patch is None or patch.diff == ""


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("key", ["actor_rollout_ref.rollout.gpu_memory_utilization"])
@pytest.mark.parametrize("form", ["{}={}", "'{}={}'", '"{}={}"', "+{}={}", "++{}={}", "'+{}={}'", "{}='{}'", '{}="{}"'])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_override_is_replaced_in_its_own_quotes(place: int, form: str, key: str, eol: str) -> None:
    """Quotes around the value, the whole word or with a leading plus stay."""
    others = ["data.train_batch_size=64", "trainer.nnodes=1"]
    text = hydra(*others[:place], form.format(key, 0.8), *others[place:], eol=eol)
    expected = hydra(*others[:place], form.format(key, 0.6), *others[place:], eol=eol)
    result = patched("run.sh", text, "rollout.gpu_memory_utilization", 0.6, framework=VERL)
    assert expected == result
    assert value_of("run.sh", result, "rollout.gpu_memory_utilization", VERL) == 0.6


@pytest.mark.parametrize(
    ("before", "after"), [("True", "False"), ("true", "false"), ("'True'", "'False'"), ("1", "False")]
)
def test_boolean_of_an_override_keeps_its_case(before: str, after: str) -> None:
    """True stays Python's, true stays YAML's."""
    key = "actor_rollout_ref.actor.fsdp_config.optimizer_offload"
    result = patched("run.sh", hydra(f"{key}={before}"), "offload_optimizer", False, framework=VERL)
    assert hydra(f"{key}={after}") == result


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_override_is_added_on_a_line_of_its_own(eol: str) -> None:
    """A key of the shipped tree needs no plus."""
    text = hydra("data.train_batch_size=64", eol=eol)
    expected = hydra("data.train_batch_size=64", "actor_rollout_ref.model.use_fused_kernels=True", eol=eol)
    assert expected == patched("run.sh", text, "fused_logits", True, add=True, framework=VERL)


@pytest.mark.parametrize("end", ["\n", " $@\n", " 2>&1 | tee log\n", ""])
def test_override_is_added_before_what_follows(end: str) -> None:
    """Redirections and "$@" stay behind it."""
    text = hydra("data.train_batch_size=64", end=end)
    result = patched("run.sh", text, "fused_logits", True, add=True, framework=VERL)
    assert hydra("data.train_batch_size=64", f"actor_rollout_ref.model.use_fused_kernels=True{end}", end="") == result


@pytest.mark.parametrize(
    "before", ["export {}=0.8", "{}=0.8 ray start --head;", "export A=1 {}=0.8", "export {}='0.8'"]
)
def test_ray_threshold_is_replaced(before: str) -> None:
    """An exported value, or one before a command, changes in place."""
    text = f"{before.format('RAY_memory_usage_threshold')}\n{script('--zero_stage 3', head='')}"
    expected = text.replace("0.8", "0.95")
    assert expected == patched("run.sh", text, "ray.memory_usage_threshold", 0.95, framework=OPENRLHF)


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_environment_variable_is_exported_before_the_command(eol: str) -> None:
    """The export stands on the line before the command, in the file's line ends."""
    text = script("--zero_stage 3", "--bf16", eol=eol)
    result = patched("run.sh", text, "expandable_segments", "True", add=True, framework=OPENRLHF)
    line = f"export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True{eol}"
    assert text.replace("python3", f"{line}python3") == result
    assert value_of("run.sh", result, "expandable_segments", OPENRLHF) is True


@pytest.mark.parametrize("place", ["export {}\n{}", "{} {}"])
def test_allocator_option_joins_the_users_own(place: str) -> None:
    """PYTORCH_CUDA_ALLOC_CONF is one variable: an added option must not drop or lose to the others."""
    text = place.format("PYTORCH_CUDA_ALLOC_CONF=garbage_collection_threshold:0.8", script("--zero_stage 3", head=""))
    result = patched("run.sh", text, "expandable_segments", "True", add=True, framework=OPENRLHF)
    assert result.count("PYTORCH_CUDA_ALLOC_CONF") == 1
    assert value_of("run.sh", result, "expandable_segments", OPENRLHF) is True


def test_container_limits_are_changed_in_docker_only() -> None:
    """`--memory` and `-m` of docker are limits; `-m` of python is not."""
    head = "docker run -d --memory=500g --shm-size 16g nvcr.io/pytorch sleep infinity\n"
    text = script("--zero_stage 3", head=head)
    expected = text.replace("500g", "625g")
    assert expected == patched("run.sh", text, "container.memory", "625g", framework=OPENRLHF)


@pytest.mark.parametrize("line", ["#SBATCH --mem=500G", "#SBATCH --mem 500G"])
def test_slurm_limit_is_changed(line: str) -> None:
    """A batch script's own limit is in a comment that Slurm reads."""
    text = f"#!/bin/bash\n{line}\n#SBATCH --nodes=1\n{script('--zero_stage 3', head='')}"
    expected = text.replace("500G", "625G")
    assert expected == patched("job.sbatch", text, "container.memory", "625G", framework=OPENRLHF)


def test_bytes_that_are_no_utf8_stay() -> None:
    """A Latin-1 comment survives an edit beside it."""
    raw = script("--micro_train_batch_size 8", head="# größe\n").encode("latin-1")
    text = raw.decode("utf-8", "surrogateescape")
    result = patched("launch.sh", text, "train.micro_batch_size", 4, framework=OPENRLHF)
    assert raw.replace(b"size 8", b"size 4") == result.encode("utf-8", "surrogateescape")


@pytest.mark.parametrize("before", ["export {}=20", "{}=20 ray start --head;", "export A=1 {}=20", "export {}='20'"])
def test_environment_variable_is_replaced(before: str) -> None:
    """An exported value, or one before a command, changes in place."""
    text = f"{before.format('NCCL_IB_TIMEOUT')}\n{script('--zero_stage 3', head='')}"
    result = patched("run.sh", text, "NCCL_IB_TIMEOUT", 22, framework=OPENRLHF)
    assert text.replace("=20", "=22").replace("='20", "='22") == result


@pytest.mark.parametrize("setting", ["actor_num_nodes", "train.micro_batch_size"])
def test_null_is_never_written_into_a_flag(setting: str) -> None:
    """argparse would refuse the word null; a value that is only told changes no line."""
    text = script("--actor_num_nodes 1", "--micro_train_batch_size 4")
    patch = plan("launch.sh", text, setting, None, framework=OPENRLHF)
    assert patch is None or "null" not in patch.diff
