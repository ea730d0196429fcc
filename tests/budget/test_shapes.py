"""Shapes of public models: the numbers of parameters that their makers publish."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhfdoctor.budget.shapes import find_shape, of_size, read_shape
from rlhfdoctor.errors import SourceError, UsageError


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Qwen/Qwen2.5-0.5B", 494_032_768),
        ("Qwen/Qwen2.5-1.5B-Instruct", 1_543_714_304),
        ("Qwen/Qwen2.5-3B", 3_085_938_688),
        ("Qwen/Qwen2.5-Math-7B", 7_615_616_512),
        ("Qwen/Qwen2.5-14B", 14_770_033_664),
        ("Qwen/Qwen2.5-32B", 32_763_876_352),
        ("/models/Qwen2.5-72B", 72_706_203_648),
        ("Qwen/Qwen3-0.6B", 596_049_920),
        ("Qwen/Qwen3-8B", 8_190_735_360),
        ("Qwen/Qwen3-30B-A3B", 30_532_122_624),
        ("meta-llama/Llama-3.1-8B-Instruct", 8_030_261_248),
        ("meta-llama/Llama-3.1-70B", 70_553_706_496),
        ("meta-llama/Llama-3.2-1B", 1_235_814_400),
        ("meta-llama/Llama-3.2-3B", 3_212_749_824),
        ("meta-llama/Llama-2-7b-hf", 6_738_415_616),
        ("meta-llama/Llama-2-13b-chat-hf", 13_015_864_320),
        ("meta-llama/Llama-2-70b", 68_976_648_192),
        ("mistralai/Mistral-7B-v0.3", 7_248_023_552),
        ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704),
        ("baichuan-inc/Baichuan2-13B-Chat", 13_896_668_160),
        ("baichuan-inc/Baichuan-13B-Chat", 13_264_901_120),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 7_615_616_512),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", 8_030_261_248),
    ],
)
def test_parameters(name: str, parameters: int) -> None:
    """To the last weight."""
    shape = find_shape(name)
    assert shape is not None
    assert shape.parameters == parameters


@pytest.mark.parametrize("billions", [0.5, 1.3, 7, 13, 34, 70, 180])
def test_unknown_family(billions: float) -> None:
    """A size in the name gives its number of parameters and a shape that fits it to a third."""
    shape = find_shape(f"someone/own-{billions}B-chat")
    assert shape is not None
    assert shape.parameters == billions * 1e9
    assert 0.6 < 12 * shape.layers * shape.hidden**2 / shape.parameters < 1.4


@pytest.mark.parametrize("name", ["policy", "/ckpt/step-100", "gpt2", "v0.3b1", ""])
def test_a_name_that_tells_nothing(name: str) -> None:
    """No family, no size: None."""
    assert find_shape(name) is None


def test_cache_per_token() -> None:
    """As vLLM counts: 56 KiB for Qwen2.5-7B, 128 KiB for Llama-3-8B; tensor parallelism divides the heads, not below one."""
    qwen, llama = find_shape("Qwen2.5-7B"), find_shape("Llama-3-8B")
    assert qwen is not None and llama is not None
    assert (qwen.cache_bytes_per_token(), llama.cache_bytes_per_token(), qwen.cache_bytes_per_token(8)) == (
        57_344,
        131_072,
        14_336,
    )


def test_config_json(tmp_path: Path) -> None:
    """A folder or the file; a mixture, a model with several parts, and the default of a key."""
    base = {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
    }
    (tmp_path / "config.json").write_text(json.dumps(base))
    assert read_shape(tmp_path).parameters == read_shape(tmp_path / "config.json").parameters == 7_615_616_512
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2_5_vl", "text_config": base}))
    assert read_shape(tmp_path).parameters == 7_615_616_512
    moe = {
        **base,
        "model_type": "mixtral",
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 32,
        "intermediate_size": 14336,
        "vocab_size": 32000,
    }
    (tmp_path / "config.json").write_text(json.dumps(moe))
    assert read_shape(tmp_path).parameters == 46_702_792_704


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", SourceError),
        ("{}", UsageError),
        ('{"hidden_size": 0, "num_attention_heads": 0}', UsageError),
        ("[]", UsageError),
        ('{"hidden_size": "x", "num_attention_heads": 2}', UsageError),
    ],
)
def test_bad_config(text: str, error: type[Exception], tmp_path: Path) -> None:
    """The file and what is wrong, in one line."""
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(error, match=r"config\.json|not the config"):
        read_shape(tmp_path)


def test_no_file(tmp_path: Path) -> None:
    """The path is named."""
    with pytest.raises(SourceError, match="nowhere"):
        read_shape(tmp_path / "nowhere")


def test_size_keeps_its_name() -> None:
    """A shape by size names itself."""
    assert of_size(7e9).name == "7B"
