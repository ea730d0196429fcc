"""Canonical names, spellings by release, and the tables themselves."""

from __future__ import annotations

from itertools import combinations

import pytest
import yaml

from rlhfdoctor.settings.spell import (
    TABLES,
    Spelling,
    load_table,
    lookup,
    normal,
    parse_version,
    spell,
    spellings,
    table_text,
)

ROWS = [
    pytest.param(table, spelling, id=f"{table}:{spelling.name}:{spelling.spelled[:40]}")
    for table in TABLES
    for spelling in load_table(table)
]
FORMS = {"flag", "hydra", "yaml", "json", "env", "sbatch", "code"}
each_table = pytest.mark.parametrize("table", TABLES)


@pytest.mark.parametrize(
    ("name", "framework", "version", "expected"),
    [
        ("offload_optimizer", "openrlhf", "0.0.1", "--adam_offload"),
        ("offload_optimizer", "openrlhf", "0.10.1", "--adam_offload"),
        ("offload_optimizer", "openrlhf", "0.10.1.post2", "--adam_offload"),
        ("offload_optimizer", "openrlhf", "0.10.2", "--ds.adam_offload"),
        ("offload_optimizer", "openrlhf", "0.11.2", "--ds.adam_offload"),
        ("offload_optimizer", "openrlhf", "99", "--ds.adam_offload"),
        ("offload_optimizer", "openrlhf", None, "--ds.adam_offload"),
        ("offload_optimizer", "openrlhf", "main", "--ds.adam_offload"),
        ("offload_optimizer", "openrlhf", "v0.5.3", "--adam_offload"),
        ("colocate_all", "openrlhf", "0.5.8", "--colocate_all_models"),
        ("colocate_all", "openrlhf", "0.5.7", None),
        ("rollout.free_cache_engine", "openrlhf", "0.5.3", None),
        ("rollout.swap_space", "simplerl", None, "actor_rollout_ref.rollout.swap_space"),
        ("rollout.gpu_memory_utilization", "vllm", "0.8.5.post1", "--gpu-memory-utilization"),
    ],
)
def test_spell(name: str, framework: str, version: str | None, expected: str | None) -> None:
    """A release accepts one spelling; an unknown release takes the newest."""
    found = spell(name, framework, version)
    assert (found.spelled if found else None) == expected


@pytest.mark.parametrize(
    ("since", "until", "version", "expected"),
    [
        ("0.5.0", "0.9.2", "0.5.0", True),
        ("0.5.0", "0.9.2", "0.9.2", True),
        ("0.5.0", "0.9.2", "0.9.2.post1", False),
        ("0.5.0", "0.10.1.post2", "0.10.2", False),
        ("0.5.0", "0.10.1.post2", "0.10.1.post2", True),
        ("0.5.0", "0.9.2", "0.4.9", False),
        ("0.5.0", "0.9.2", "0.10.0", False),
        ("0.5.0", "0.9.2", "0.5.0.dev1", False),
        ("0.5.0", None, "9", True),
        (None, "0.9.2", "0.0.1", True),
        ("~0.5.0", "0.9.2", "0.4", False),
        ("<=0.5.0", "0.9.2", "0.4", False),
        ("2025-03", None, "0.1", True),
        ("0.5.0", "0.9.2", None, True),
        ("0.5.0", "0.9.2", "nightly", True),
        ("0.5.0", "0.9.2", "0.6.0+cu121", True),
    ],
)
def test_holds_at(since: str | None, until: str | None, version: str | None, expected: bool) -> None:
    """Both ends of a range belong to it; an unknown release may be inside."""
    spelling = Spelling(
        name="a", spelled="--a", framework="x", form="flag", since=since, until=until, default=None, row={}
    )
    assert spelling.holds_at(version) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.10.2", "0.10.2"),
        ("v0.10.2", "0.10.2"),
        ("~1.10", "1.10"),
        ("<=2.9.3", "2.9.3"),
        ("0.6.0+cu121", "0.6.0"),
        ("0.10.1.post2", "0.10.1.post2"),
        (None, None),
        ("main", None),
        ("2025-03", None),
        ("2025-03-01", None),
        ("", None),
    ],
)
def test_parse_version(text: str | None, expected: str | None) -> None:
    """Marks in front are taken off; dates and words are no releases."""
    found = parse_version(text)
    assert (str(found) if found else None) == expected


@pytest.mark.parametrize(
    ("spelled", "prefer", "name", "framework"),
    [
        ("--adam_offload", None, "offload_optimizer", "openrlhf"),
        ("--adam-offload", None, "offload_optimizer", "openrlhf"),
        ("--ds.adam_offload", None, "offload_optimizer", "openrlhf"),
        ("+actor_rollout_ref.rollout.swap_space", "simplerl", "rollout.swap_space", "simplerl"),
        ("data.max_prompt_length", "verl", "max_prompt_length", "verl"),
        ("data.max_prompt_length", "easyr1", "max_prompt_length", "easyr1"),
        ("zero_optimization.offload_optimizer.pin_memory", None, "offload_optimizer.pin_memory", "deepspeed"),
        ("--gpu_memory_utilization", None, "rollout.gpu_memory_utilization", "vllm"),
        ("RAY_memory_monitor_refresh_ms", None, "ray.memory_monitor_refresh", "ray"),
        ("-m", "container", "container.memory", "container"),
    ],
)
def test_lookup(spelled: str, prefer: str | None, name: str, framework: str) -> None:
    """A spelling is found with `-` for `_`, with a plus, and in the preferred table first."""
    found = lookup(spelled, prefer)
    assert found is not None
    assert (found.name, found.framework) == (name, framework)


@pytest.mark.parametrize("spelled", ["--nonsense", "", "--", "+", "-x", "adam_offload"])
def test_lookup_of_nothing(spelled: str) -> None:
    """What no table knows is not found."""
    assert lookup(spelled) is None


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("--a-b", "--a_b", True),
        ("+a.b", "a.b", True),
        ("++a.b", "~a.b", True),
        ("-m", "_m", False),
        ("--a", "--b", False),
    ],
)
def test_normal(one: str, two: str, same: bool) -> None:
    """Dashes and underscores are one, and leading plusses do not count."""
    assert (normal(one) == normal(two)) == same


@pytest.mark.parametrize(
    ("framework", "name", "version", "default"),
    [
        ("vllm", "rollout.gpu_memory_utilization", "0.33.0", 0.92),
        ("vllm", "rollout.gpu_memory_utilization", "0.19.1", 0.9),
        ("trl", "vllm_mode", "0.20.0", "server"),
        ("trl", "rollout.gpu_memory_utilization", "0.15.0", 0.9),
    ],
)
def test_default_by_release(framework: str, name: str, version: str, default: object) -> None:
    """The default is that of the release."""
    found = spell(name, framework, version)
    assert found is not None
    assert found.default == default


# --- tables ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("table", "spelling"), ROWS)
def test_range_is_in_order(table: str, spelling: Spelling) -> None:
    """No row ends before it begins."""
    since, until = parse_version(spelling.since), parse_version(spelling.until)
    assert since is None or until is None or since <= until


@each_table
def test_forms(table: str) -> None:
    """Every form is one that can be read and written."""
    assert [s.name for s in load_table(table) if s.form not in FORMS] == []


@pytest.mark.parametrize("table", TABLES)
def test_spellings_fit_their_form(table: str) -> None:
    """Flags begin with a dash; nothing else does, but slurm's option."""
    wrong = [s.spelled for s in load_table(table) if s.spelled.startswith("-") != (s.form in ("flag", "sbatch"))]
    assert wrong == []


@each_table
def test_rows_have_their_words(table: str) -> None:
    """Every row says what it affects, what it means and where that is written."""
    wanted = {
        "name",
        "spelled",
        "since",
        "until",
        "default",
        "form",
        "affects",
        "meaning",
        "memory_effect",
        "tradeoff",
        "source",
    }
    assert [s.name for s in load_table(table) if wanted - set(s.row)] == []


@each_table
def test_table_names_its_framework(table: str) -> None:
    """The file says whose table it is."""
    assert yaml.safe_load(table_text(table))["framework"] == table


@each_table
def test_every_spelling_is_found(table: str) -> None:
    """Every spelling that a user may write leads back to its table."""
    lost = [
        s.spelled
        for s in load_table(table)
        if s.form != "code" and getattr(lookup(s.spelled, table), "framework", None) != table
    ]
    assert lost == []


def test_other_frameworks_settings_are_no_settings_of_this_one() -> None:
    """A spelling that only another framework has is unknown in a run of a known one; forks take what they were made of."""
    assert lookup("rollout.gpu_memory_utilization").framework == "rlhfdoctor"
    assert lookup("rollout.gpu_memory_utilization", "verl") is None
    assert lookup("actor_rollout_ref.actor.use_dynamic_bsz", "simplerl").framework == "verl"


#: both spellings are accepted by the same releases, as deprecated ones are
BOTH = {
    ("verl", "actor_rollout_ref.actor.ppo_micro_batch_size"),
    ("verl", "actor_rollout_ref.rollout.log_prob_micro_batch_size"),
    ("verl", "actor_rollout_ref.ref.log_prob_micro_batch_size"),
    ("verl", "critic.ppo_micro_batch_size"),
    ("simplerl", "actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu"),
    ("trl", "use_liger_loss"),
    ("deepspeed", "zero_optimization.cpu_offload"),
    ("deepspeed", "zero_optimization.cpu_offload_param"),
    ("deepspeed", "zero_optimization.stage3_gather_fp16_weights_on_model_save"),
    ("torch", "PYTORCH_CUDA_ALLOC_CONF"),
    ("torch", "NCCL_ASYNC_ERROR_HANDLING"),
    ("torch", "TORCH_FR_BUFFER_SIZE"),
    ("ray", "RAY_object_spilling_config"),
}
PAIRS = [
    (table, row["name"], one, two)
    for table in TABLES
    for row in yaml.safe_load(table_text(table))["settings"]
    for one, two in combinations([{**row, "aliases": None}, *row.get("aliases", ())], 2)
    if one["spelled"] != two["spelled"]
    and not {"only", "for", "remark"} & {*one, *two}
    and (table, two["spelled"]) not in BOTH
]


@pytest.mark.parametrize(
    ("table", "name", "one", "two"),
    PAIRS,
    ids=[f"{table}:{one['spelled']}:{two['spelled']}" for table, _, one, two in PAIRS],
)
def test_no_two_spellings_in_one_release(table: str, name: str, one: dict[str, str], two: dict[str, str]) -> None:
    """No release accepts two spellings of one name, but those that are known to be accepted both."""
    first, second = sorted((one, two), key=lambda row: str(parse_version(row["since"]) or ""))
    ends = [(parse_version(row["since"]), parse_version(row["until"])) for row in (first, second)]
    (low_a, high_a), (low_b, high_b) = ends
    apart = (high_a and low_b and high_a < low_b) or (high_b and low_a and high_b < low_a)
    assert bool(apart)


@each_table
def test_newest_spelling_comes_first(table: str) -> None:
    """Of the spellings of a name in one row the first has the latest end."""
    rows = [spellings(name, table) for name in {s.name for s in load_table(table)}]
    wrong = [row[0].name for row in rows if row[0].until is not None and any(s.until is None for s in row)]
    assert wrong == []
