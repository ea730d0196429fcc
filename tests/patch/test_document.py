"""Values and keys of YAML and JSON files."""

from __future__ import annotations

import json

import pytest
import yaml

from rlhfdoctor.settings.read import read_configuration

from .build import EASYR1, patched, plan, read, value_of

FLOW = "worker: {actor: {micro_batch_size_per_device_for_update: 4, offload: {offload_optimizer: true}}}\n"
ANCHORED = """\
defaults: &size 4
worker:
  actor:
    micro_batch_size_per_device_for_update: *size
    global_batch_size: *size
"""
PRETTY = """\
{
  "train_batch_size": 16,
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {
      "device": "cpu",
      "pin_memory": true
    }
  },
  "bf16": {"enabled": true}
}
"""


def actor(line: str, before: str = "", after: str = "") -> str:
    """An EasyR1 configuration with one line of `worker.actor`."""
    return f"# run 7\ndata:\n  shuffle: true\n\nworker:\n  actor:\n{before}    {line}\n{after}  rollout:\n    n: 5 # five\n"


def update(value: str) -> str:
    """A line with the micro batch of an update."""
    return f"micro_batch_size_per_device_for_update: {value}"


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("start", ["", "\ufeff", "---\n"], ids=["plain", "bom", "marker"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        (update("4"), update("2")),
        (update("4  # was 8"), update("2  # was 8")),
        (update("'4'"), update("'2'")),
        (update('"4"'), update('"2"')),
        (update("   4   "), update("   2   ")),
        ("micro_batch_size_per_device_for_update : 4", "micro_batch_size_per_device_for_update : 2"),
        ("'micro_batch_size_per_device_for_update': 4", "'micro_batch_size_per_device_for_update': 2"),
    ],
)
def test_yaml_value_is_replaced_where_it_stands(before: str, after: str, start: str, eol: str) -> None:
    """Comments, quotes, blanks, order and line ends of the file stay."""
    text, expected = (start + actor(line).replace("\n", eol) for line in (before, after))
    result = patched("config.yaml", text, "train.micro_batch_size", 2, framework=EASYR1)
    assert expected == result
    found = value_of("config.yaml", result, "train.micro_batch_size", EASYR1)
    assert str(found) == "2"


@pytest.mark.parametrize(("before", "after"), [("true", "false"), ("True", "False"), ("yes", "false"), ("on", "false")])
def test_yaml_boolean_keeps_its_case(before: str, after: str) -> None:
    """True becomes False and true false."""
    text, expected = (actor("offload:", after=f"      offload_optimizer: {word}\n") for word in (before, after))
    result = patched("config.yaml", text, "offload_optimizer", False, framework=EASYR1)
    assert expected == result
    assert yaml.safe_load(result)["worker"]["actor"]["offload"]["offload_optimizer"] is False


def test_yaml_flow_value_is_replaced() -> None:
    """Braces on one line are kept."""
    expected = FLOW.replace("update: 4", "update: 2")
    assert expected == patched("c.yaml", FLOW, "train.micro_batch_size", 2, framework=EASYR1)


def test_yaml_empty_value_is_filled() -> None:
    """`key:` with nothing behind it is null, and gets a value after a blank."""
    text = actor("offload:", after="      offload_optimizer:\n")
    result = patched("config.yaml", text, "offload_optimizer", True, framework=EASYR1)
    assert text.replace("offload_optimizer:", "offload_optimizer: true") == result


@pytest.mark.parametrize("line", ["&size 4", "!!int 4"], ids=["anchor", "tag"])
def test_yaml_anchor_and_tag_stay(line: str) -> None:
    """Another place may refer to the anchor."""
    text = actor(update(line), after="    global_batch_size: *size\n" if "&" in line else "")
    result = patched("config.yaml", text, "train.micro_batch_size", 2, framework=EASYR1)
    assert text.replace(line, line.replace("4", "2")) == result
    assert yaml.safe_load(result)["worker"]["actor"]["micro_batch_size_per_device_for_update"] == 2


def test_yaml_alias_is_never_written_at_its_anchor() -> None:
    """A patch of a value that is an alias leaves the anchor, which serves other keys too, as it is."""
    patch = plan("config.yaml", ANCHORED, "train.micro_batch_size", 2, framework=EASYR1)
    assert patch is not None
    assert "&size" not in "".join(line for line in patch.diff.splitlines() if line.startswith(("+", "-")))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "trainer:\n  nnodes: 1  # one\n  save_freq: 5 # often\nworker:\n  actor:\n    global_batch_size: 8\n",
            "trainer:\n  nnodes: 1  # one\n  save_freq: 5 # often\n  save_model_only: true\nworker:\n  actor:\n    global_batch_size: 8\n",
        ),
        ("trainer:\n    nnodes: 1\n", "trainer:\n    nnodes: 1\n    save_model_only: true\n"),
        ("trainer:\n  nnodes: 1", "trainer:\n  nnodes: 1\n  save_model_only: true"),
        ("trainer: {nnodes: 1, save_freq: 5}\n", "trainer: {nnodes: 1, save_freq: 5, save_model_only: true}\n"),
        (
            "trainer:\n  nnodes: 1\n  logger: [console]\n",
            "trainer:\n  nnodes: 1\n  save_model_only: true\n  logger: [console]\n",
        ),
        (
            "trainer:\n  note: |\n    two\n    lines\nworker:\n  actor:\n    global_batch_size: 8\n",
            "trainer:\n  note: |\n    two\n    lines\n  save_model_only: true\nworker:\n  actor:\n    global_batch_size: 8\n",
        ),
        ("trainer:\r\n  nnodes: 1\r\n", "trainer:\r\n  nnodes: 1\r\n  save_model_only: true\r\n"),
    ],
    ids=["block", "deep-indent", "no-newline", "flow", "before-list", "block-scalar", "crlf"],
)
def test_yaml_key_is_added_beside_its_siblings(text: str, expected: str) -> None:
    """A new key takes the indent and the style of the mapping it belongs to."""
    result = patched("config.yaml", text, "checkpoint.model_only", True, add=True, framework=EASYR1)
    assert expected == result
    assert yaml.safe_load(result)["trainer"]["save_model_only"] is True


def test_yaml_key_in_a_flow_mapping_over_several_lines_is_valid() -> None:
    """The comma before the new key is there, and no other key changes."""
    text = "trainer: {\n  nnodes: 1,\n  save_freq: 5\n}\n"
    result = patched("config.yaml", text, "checkpoint.model_only", True, add=True, framework=EASYR1)
    assert yaml.safe_load(result) == {"trainer": {"nnodes": 1, "save_freq": 5, "save_model_only": True}}


def test_yaml_key_without_siblings_is_only_told() -> None:
    """Where the mapping itself is missing, nothing is written."""
    patch = plan(
        "config.yaml",
        "worker:\n  actor:\n    global_batch_size: 8\n",
        "checkpoint.model_only",
        True,
        add=True,
        framework=EASYR1,
    )
    assert patch is not None
    assert (patch.file, patch.diff) == (None, "")


@pytest.mark.parametrize("eol", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize(
    "text",
    [
        PRETTY,
        PRETTY.replace("  ", "\t"),
        json.dumps(json.loads(PRETTY), separators=(",", ":")),
        json.dumps(json.loads(PRETTY)) + "\n",
    ],
    ids=["pretty", "tabs", "compact", "one-line"],
)
def test_json_boolean_is_replaced(text: str, eol: str) -> None:
    """A boolean changes in place, in JSON's own words."""
    text = text.replace("\n", eol)
    expected = text.replace('"pin_memory": true', '"pin_memory": false').replace(
        '"pin_memory":true', '"pin_memory":false'
    )
    result = patched("ds_config.json", text, "offload_optimizer.pin_memory", False)
    assert expected == result
    assert json.loads(result)["zero_optimization"]["offload_optimizer"]["pin_memory"] is False


@pytest.mark.parametrize(
    ("setting", "to", "before", "after"),
    [
        ("zero_stage", 2, '"stage": 3', '"stage": 2'),
        ("offload_optimizer", "none", '"device": "cpu"', '"device": "none"'),
    ],
)
def test_json_value_is_replaced(setting: str, to: object, before: str, after: str) -> None:
    """Numbers stay numbers and strings quoted."""
    assert PRETTY.replace(before, after) == patched("ds_config.json", PRETTY, setting, to)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (PRETTY, PRETTY.replace('"pin_memory": true', '"pin_memory": true,\n      "ratio": 0.9')),
        (
            PRETTY.replace("  ", "\t"),
            PRETTY.replace("  ", "\t").replace(": true\n\t\t}", ': true,\n\t\t\t"ratio": 0.9\n\t\t}'),
        ),
        (
            json.dumps(json.loads(PRETTY)),
            json.dumps(json.loads(PRETTY)).replace('"pin_memory": true', '"pin_memory": true, "ratio": 0.9'),
        ),
        (
            PRETTY.replace("\n", "\r\n"),
            PRETTY.replace('"pin_memory": true', '"pin_memory": true,\n      "ratio": 0.9').replace("\n", "\r\n"),
        ),
    ],
    ids=["pretty", "tabs", "one-line", "crlf"],
)
def test_json_key_is_added_beside_its_siblings(text: str, expected: str) -> None:
    """The comma and the indent are those of the file."""
    result = patched("ds_config.json", text, "offload_optimizer.ratio", 0.9, add=True)
    assert json.loads(result)["zero_optimization"]["offload_optimizer"]["ratio"] == 0.9
    assert expected == result


def test_deepspeed_offload_is_switched_off_in_its_own_word() -> None:
    """`"device": "none"`; false is refused by DeepSpeed's classes."""
    result = patched("ds_config.json", PRETTY, "offload_optimizer", False)
    assert PRETTY.replace('"cpu"', '"none"') == result


def test_same_value_is_no_patch() -> None:
    """What is already set is not proposed."""
    assert plan("ds_config.json", PRETTY, "zero_stage", 3) is None
    assert plan("ds_config.json", PRETTY, "offload_optimizer.pin_memory", True) is None


def test_invalid_documents_are_a_gap() -> None:
    """A broken file is reported and yields nothing to patch."""
    patch = plan("ds_config.json", '{"zero_optimization": {', "zero_stage", 2)
    assert patch is None or patch.diff == ""
    _, gaps = read_configuration("ds_config.json", '{"zero_optimization": {')
    assert [str(gap.what) for gap in gaps] == ["ds_config.json"]


def test_yaml_settings_have_their_lines() -> None:
    """A setting knows the line of its value."""
    assert read("ds_config.json", PRETTY)["zero_stage"].origin.line == 4
