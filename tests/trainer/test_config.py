"""The configuration: what overrides what, and one line with the key for everything that cannot work."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from pathlib import Path

import click.testing
import pytest

pytest.importorskip("torch")
pytest.importorskip("omegaconf")

from trainer import train
from trainer.config import Config, ConfigError, read_config, read_deepspeed

CONFIGS = Path(train.__file__).parent / "configs"


def yaml(folder: Path, text: str) -> Path:
    """A configuration file in the folder."""
    folder.mkdir(exist_ok=True)
    path = folder / "run.yaml"
    path.write_text(text)
    return path


def error_of(file: Path | None, *words: str) -> str:
    """What the configuration is refused with."""
    with pytest.raises(ConfigError) as caught:
        read_config(file, list(words))
    return str(caught.value)


# --- what overrides what -----------------------------------------------------------------------


def test_defaults() -> None:
    """Without file and words, the defaults are a configuration that passes its own check."""
    assert Config() == read_config(None, [])


def test_file_is_over_defaults(tmp_path: Path) -> None:
    """The file says what differs from the defaults; an empty file says nothing."""
    assert read_config(yaml(tmp_path, "train: {steps: 7}"), []).train.steps == 7
    assert Config() == read_config(yaml(tmp_path, ""), [])


def test_words_are_over_the_file(tmp_path: Path) -> None:
    """A word overrides the file, and leaves the rest of its section alone."""
    config = read_config(yaml(tmp_path, "train: {steps: 7, seed: 3}"), ["train.steps=8"])
    assert (config.train.steps, config.train.seed) == (8, 3)


def test_the_last_word_counts() -> None:
    """Of two words for one key the last one counts."""
    assert read_config(None, ["train.steps=8", "train.steps=9"]).train.steps == 9


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("train.lr=1e-4", 1e-4),
        ("train.lr=1", 1.0),
        ("model.path=/models/qwen", "/models/qwen"),
        ("model.path=null", None),
        ("out=runs/a=b", "runs/a=b"),
        ("rollout.sleep=true", True),
        ("cluster.object_store_memory=80000000", 80_000_000),
    ],
)
def test_types_of_words(word: str, expected: object) -> None:
    """Words become what their field is."""
    found: object = read_config(None, [word])
    for name in word.partition("=")[0].split("."):
        found = getattr(found, name)
    assert (type(expected), expected) == (type(found), found)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_bundled_configurations(path: Path) -> None:
    """Every configuration in trainer/configs loads, passes the check, and finds its DeepSpeed JSON beside itself."""
    config = read_config(path, [])
    assert Path(config.deepspeed).parent == CONFIGS
    assert "stage" in config.zero()["zero_optimization"]


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.json")), ids=lambda path: path.stem)
def test_bundled_deepspeed(path: Path) -> None:
    """Every DeepSpeed JSON in trainer/configs loads, and says the stage that its name says."""
    assert int(path.stem[len("zero")]) == read_deepspeed(path)["zero_optimization"]["stage"]


# --- derived values ----------------------------------------------------------------------------


def test_sequences_per_step() -> None:
    """Prompts times samples."""
    assert read_config(None, ["rollout.samples_per_prompt=3"]).sequences_per_step == 96


def test_checkpoints_are_in_the_run_folder() -> None:
    """A relative checkpoint folder counts from the run's folder, an absolute one does not."""
    assert Path("runs/a/checkpoints") == read_config(None, ["out=runs/a"]).checkpoints
    assert Path("/disk/c") == read_config(None, ["out=runs/a", "checkpoint.folder=/disk/c"]).checkpoints


def test_no_deepspeed_is_stage_0() -> None:
    """Without a DeepSpeed JSON nothing is partitioned."""
    assert read_config(None, []).zero() == {"zero_optimization": {"stage": 0}}


# --- the DeepSpeed path ------------------------------------------------------------------------

STAGE_2 = '{"zero_optimization": {"stage": 2}}'


def test_relative_deepspeed_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative path counts from the YAML file's folder, not from the present one."""
    file = yaml(tmp_path / "configs", "deepspeed: ds.json")
    (tmp_path / "configs" / "ds.json").write_text(STAGE_2)
    (tmp_path / "ds.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert str(tmp_path / "configs" / "ds.json") == read_config(file, []).deepspeed
    assert read_config(file, []).zero()["zero_optimization"]["stage"] == 2


def test_deepspeed_path_of_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that is not beside the YAML file counts from the present folder, as shells complete it."""
    file = yaml(tmp_path / "configs", "")
    (tmp_path / "ds.json").write_text(STAGE_2)
    monkeypatch.chdir(tmp_path)
    assert read_config(file, ["deepspeed=ds.json"]).deepspeed == "ds.json"


def test_absolute_deepspeed_path(tmp_path: Path) -> None:
    """An absolute path stays as it is."""
    (tmp_path / "ds.json").write_text(STAGE_2)
    file = yaml(tmp_path / "configs", f"deepspeed: {tmp_path}/ds.json")
    assert f"{tmp_path}/ds.json" == read_config(file, []).deepspeed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "{broken",
            "deepspeed: {path} is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ),
        ("", "deepspeed: {path} is no JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[]", "deepspeed: {path} is not a JSON object"),
        ("3", "deepspeed: {path} is not a JSON object"),
    ],
    ids=["broken", "empty", "a list", "a number"],
)
def test_broken_deepspeed(tmp_path: Path, text: str, expected: str) -> None:
    """A DeepSpeed file that is no JSON object is refused with its path, before anything starts."""
    path = tmp_path / "ds.json"
    path.write_text(text)
    assert expected.replace("{path}", str(path)) == error_of(None, f"deepspeed={path}")


def test_missing_deepspeed(tmp_path: Path) -> None:
    """A DeepSpeed file that is not there, or is a folder, is refused with its path and the system's reason."""
    missing = tmp_path / "ds.json"
    assert f"deepspeed: cannot read {missing}: No such file or directory" == error_of(None, f"deepspeed={missing}")
    assert f"deepspeed: cannot read {tmp_path}: Is a directory" == error_of(None, f"deepspeed={tmp_path}")


@pytest.mark.parametrize(
    "text", ['{"zero_optimization": {}}', '{"zero_optimization": 2}', '{"zero_optimization": {"stage": "auto"}}']
)
def test_deepspeed_without_a_stage(tmp_path: Path, text: str) -> None:
    """A DeepSpeed file from which no stage can be read is refused."""
    path = tmp_path / "ds.json"
    path.write_text(text)
    assert "stage" in error_of(None, f"deepspeed={path}")


# --- files and words that cannot be read -------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train.stepz=1"], "Key 'stepz' not in 'Train' (at train.stepz)"),
        (["trainer.steps=1"], "Key 'trainer' not in 'Config' (at trainer)"),
        (["train.steps=many"], "Value 'many' of type 'str' could not be converted to Integer (at train.steps)"),
        (["train.steps=1.5"], "Value '1.5' of type 'float' could not be converted to Integer (at train.steps)"),
        (["train.steps="], "Incompatible value 'None' for field of type 'int' (at train.steps)"),
        (
            ["train.steps.x=1"],
            "Value '{'x': 1}' of type 'DictConfig' could not be converted to Integer (at train.steps)",
        ),
        (["rollout.sleep=perhaps"], "Value 'perhaps' is not a valid bool (type str) (at rollout.sleep)"),
        (["train.steps=${nope}"], "Interpolation key 'nope' not found (at train.steps)"),
        (["train=5"], "Merge error: int is not a subclass of Train. value: 5"),
        (["train.steps"], "'train.steps' is not of the form section.key=value"),
        (["train.steps=1", "--steps"], "'--steps' is not of the form section.key=value"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_refused_words(words: list[str], expected: str) -> None:
    """A word with an unknown key, or of another type or form, is refused with its key."""
    assert expected == error_of(None, *words)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train: {stepz: 4}", "Key 'stepz' not in 'Train' (at train.stepz)"),
        ("train: {steps: four}", "Value 'four' of type 'str' could not be converted to Integer (at train.steps)"),
        ("train: 5", "Merge error: int is not a subclass of Train. value: 5"),
        ("train: null", "field 'train' is not Optional (at train)"),
        ("- train", "Cannot merge DictConfig with ListConfig"),
        ("steps", "Key 'steps' not in 'Config' (at steps)"),
    ],
)
def test_refused_files(tmp_path: Path, text: str, expected: str) -> None:
    """A file with an unknown key, another type or another shape is refused with the key."""
    assert expected == error_of(yaml(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("train: {steps: 5", "expected ',' or '}', but got '<stream end>'"),
        ("train:\n\tsteps: 5", "found character '\\t' that cannot start any token"),
        ("out: a\nout: b", "found duplicate key out"),
        ("out: !!python/name:os.system", "could not determine a constructor for the tag"),
        ("out: \x00", "unacceptable character #x0000"),
    ],
    ids=["never closed", "tab", "twice the same key", "python object", "zero byte"],
)
def test_broken_yaml(tmp_path: Path, text: str, expected: str) -> None:
    """YAML that cannot be read is refused in one line with the file and the parser's reason."""
    file = yaml(tmp_path, text)
    found = error_of(file)
    assert found.startswith(f"{file}: ")
    assert expected in found
    assert len(found.splitlines()) == 1


def test_missing_file(tmp_path: Path) -> None:
    """A file that is not there, or is a folder, is refused with its path and the system's reason."""
    assert f"cannot read {tmp_path}/none.yaml: No such file or directory" == error_of(tmp_path / "none.yaml")
    assert f"cannot read {tmp_path}: Is a directory" == error_of(tmp_path)


def test_file_that_is_a_number(tmp_path: Path) -> None:
    """A file that holds a number only is refused with a reason."""
    assert "None" not in error_of(yaml(tmp_path, "5"))


def test_word_that_is_broken_yaml() -> None:
    """A word whose value is broken YAML is refused with its key."""
    assert "train.steps" in error_of(None, "train.steps=[1")


# --- check -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["model.dtype=float16"], "model.dtype is 'float16'; allowed: float32, bfloat16"),
        (["rollout.backend=sglang"], "rollout.backend is 'sglang'; allowed: hf, vllm"),
        (["algorithm.kl=k2"], "algorithm.kl is 'k2'; allowed: k1, k3"),
        (["cluster.placement=split"], "cluster.placement is 'split'; allowed: fused, separate"),
        (["train.grad_accum_dtype=fp16"], "train.grad_accum_dtype is 'fp16'; allowed: None, fp32, bf16"),
        (
            ["train.mini_batch_size=24"],
            "train.mini_batch_size 24 is not a multiple of cluster.world_size 2 x train.micro_batch_size 8",
        ),
        (
            ["cluster.world_size=3"],
            "train.mini_batch_size 32 is not a multiple of cluster.world_size 3 x train.micro_batch_size 8",
        ),
        (
            ["rollout.batch_size=40", "rollout.samples_per_prompt=2"],
            "rollout.batch_size x samples_per_prompt = 80 is not a multiple of train.mini_batch_size 32",
        ),
        (
            ["rollout.batch_size=16"],
            "rollout.batch_size x samples_per_prompt = 16 is not a multiple of train.mini_batch_size 32",
        ),
        (["data.num_prompts=31"], "data.num_prompts 31 is below rollout.batch_size 32"),
        (
            ["rollout.backend=vllm", "rollout.swap_space=1"],
            "rollout.swap_space is a setting of the hf backend; vLLM dropped it in 0.18",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_check(words: list[str], expected: str) -> None:
    """What would fail hours later fails at once, with the key and what is allowed."""
    assert expected == error_of(None, *words)


@pytest.mark.parametrize(
    "words",
    [
        ["data.num_prompts=32"],
        ["rollout.batch_size=16", "rollout.samples_per_prompt=2"],
        ["rollout.backend=vllm"],
        ["rollout.swap_space=1"],
        ["train.grad_accum_dtype=fp32"],
        ["cluster.world_size=1"],
        ["train.mini_batch_size=16"],
    ],
    ids=lambda words: words[-1],
)
def test_check_passes(words: list[str]) -> None:
    """What works, be it at the very limit, is not refused."""
    assert isinstance(read_config(None, words), Config)


@pytest.mark.parametrize("key", ["train.micro_batch_size", "train.mini_batch_size", "cluster.world_size"])
def test_sizes_of_zero(key: str) -> None:
    """A size of 0 is refused with its key, not with a ZeroDivisionError."""
    assert key in error_of(None, f"{key}=0")


@pytest.mark.parametrize(
    ("words", "key"),
    [
        pytest.param(["rollout.batch_size=0"], "rollout.batch_size", id="DataLoader refuses it in the driver"),
        pytest.param(["rollout.batch_size=-32"], "rollout.batch_size", id="less than nothing"),
        pytest.param(["train.mini_batch_size=-32"], "train.mini_batch_size", id="negative accumulation steps"),
        pytest.param(["rollout.micro_batch_size=0"], "rollout.micro_batch_size", id="range() with a step of 0"),
        pytest.param(["rollout.temperature=0"], "rollout.temperature", id="logits are divided by it"),
        pytest.param(["algorithm.epochs=0"], "algorithm.epochs", id="a mean over no micro batches"),
        pytest.param(["data.max_prompt_length=0"], "data.max_prompt_length", id="row[-0:] is the whole prompt"),
        pytest.param(["data.max_response_length=0"], "data.max_response_length", id="no tokens to score"),
        pytest.param(["model.num_heads=5"], "model.num_heads", id="heads of 51, rotary positions need an even size"),
        pytest.param(
            ["model.dtype=bfloat16", "train.grad_accum_dtype=fp32"],
            "train.grad_accum_dtype",
            id="stage 0: DeepSpeed refuses the mix",
        ),
    ],
)
def test_values_that_cannot_work(words: list[str], key: str) -> None:
    """A value that no run survives is refused with its key."""
    assert key in error_of(None, *words)


# --- the command -------------------------------------------------------------------------------

Run = Callable[..., click.testing.Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command in this process, with a training loop that only prints what it was given."""
    monkeypatch.setattr(
        train, "train", lambda config: click.echo(f"trains {config.train.steps} {config.rollout.backend}")
    )
    monkeypatch.setattr(train.logging, "basicConfig", lambda **_: None)  # it would replace pytest's own handlers
    return lambda *words: click.testing.CliRunner().invoke(train.main, [str(word) for word in words])


def test_command(run: Run, tmp_path: Path) -> None:
    """File, options and words arrive at the training loop; a word is over an option, an option over the file."""
    file = yaml(tmp_path, "rollout: {backend: hf}\ntrain: {steps: 3}")
    assert (run("--config", file).exit_code, run("--config", file).output) == (0, "trains 3 hf\n")
    assert run("--config", file, "--rollout", "vllm", "train.steps=5").output == "trains 5 vllm\n"
    assert run("--config", file, "--rollout", "vllm", "rollout.backend=hf").output == "trains 3 hf\n"


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["train.stepz=1"], "train.stepz"),
        (["train.steps=many"], "train.steps"),
        (["train.steps"], "train.steps"),
        (["train.mini_batch_size=24"], "train.mini_batch_size"),
        (["--deepspeed", "/nowhere/ds.json"], "/nowhere/ds.json"),
        (["--config", "/nowhere/run.yaml"], "/nowhere/run.yaml"),
        (["--rollout", "sglang"], "--rollout"),
    ],
    ids=lambda value: value[-1] if isinstance(value, list) else "",
)
def test_command_refuses(run: Run, words: list[str], key: str) -> None:
    """A setting that cannot work ends the command with 2 and one error line with the key, and without a traceback."""
    result = run(*words)
    shown = re.sub(r"\s+", " ", result.stderr)
    assert result.exit_code == 2, "".join(traceback.format_exception(*result.exc_info))
    assert key in shown[shown.index("Error: ") :]
    assert "Traceback" not in shown


@pytest.mark.parametrize("key", ["train.callback", "data.task", "reward.function"])
def test_function_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """A function that cannot be found ends the command with 2 too: before Ray starts, or at least without a traceback."""
    from trainer.data import find_function

    monkeypatch.setattr(train, "train", lambda config: find_function("nowhere:nothing", key))
    result = run(f"{key}=nowhere:nothing")
    assert result.exit_code == 2, result.exception
