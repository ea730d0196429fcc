"""Planted secrets in every way of writing: what may be left of each class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from rlhfdoctor.privacy.redact import Redactor
from rlhfdoctor.privacy.secrets import cut_line, cut_secrets
from tests.privacy import forms
from tests.privacy.corpus import CONTAINERS, Container, Planted, find_leaks, make, plant
from tests.privacy.measure import redact, sweep

MOST_LEFT = 0.02
SECRETS = frozenset(("token", "named", "address with a secret", "hook", "command", "file", "header", "bare key"))


@pytest.fixture(scope="module")
def found() -> list[tuple[Planted, Container, list[str]]]:
    """Every form in every container, with values that the table in SECRETS.md does not have."""
    return [(planted, container, leaked) for planted, container, _, leaked in sweep("test")]


def test_the_corpus_is_large() -> None:
    """At least 200 forms in 12 containers, each with something that may not survive."""
    planted = list(plant())
    assert len(planted) >= 200 and len(CONTAINERS) >= 12
    assert all(one.secrets and all(secret in one.text for secret in one.secrets) for one in planted)
    assert len({(one.kind, one.name) for one in planted}) == len(planted)


def test_it_is_the_same_each_time() -> None:
    """A seed makes the same values."""
    assert list(plant("7")) == list(plant("7")) != list(plant("8"))


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container.name)
def test_a_container_is_read_back(container: Container) -> None:
    """The reverse of a container shows every secret, so that one that survives is seen."""
    hidden = [
        one.name
        for one in plant()
        if set(find_leaks(one, container, container.write(one.text, one.secrets))) != set(one.secrets)
    ]
    assert hidden == []


@pytest.mark.parametrize("kind", sorted(forms.PROMISED))
def test_nothing_is_left_of_what_is_promised(found: list[tuple[Planted, Container, list[str]]], kind: str) -> None:
    """README.md: no users, hosts, addresses, private paths or secrets that the patterns know."""
    assert [(one.name, place.name, leaked) for one, place, leaked in found if one.kind == kind and leaked] == []


def test_little_is_left_of_all(found: list[tuple[Planted, Container, list[str]]]) -> None:
    """2 % of all texts at most, in every container."""
    leaks = Counter(container.name for _, container, leaked in found if leaked)
    assert leaks.total() <= MOST_LEFT * len(found)
    assert all(count <= MOST_LEFT * len(found) / len(CONTAINERS) for count in leaks.values()), leaks


def _secrets() -> Iterator[Planted]:
    return (planted for planted in plant("recorder") if planted.kind in SECRETS)


def test_the_recorder_cuts_the_same() -> None:
    """A command line may hold all that a log may: one redactor for both."""
    left = [
        one.name
        for one in _secrets()
        if "\n" not in one.text and find_leaks(one, CONTAINERS[0], cut_line(one.text))
    ]
    assert left == []


def test_twice_is_once() -> None:
    """What was redacted is left as it is, whoever reads it again."""
    changed = []
    for planted in plant("twice"):
        redactor = Redactor()
        redactor.learn(planted.text)
        once = redactor.text(planted.text)
        if redactor.text(once) != once:
            changed.append((planted.name, once, redactor.text(once)))
    assert changed == []


def test_text_around_a_secret_stays() -> None:
    """Of a line in JSON, in a URL or with colours only the secret goes."""
    secret = make("«{A32}»", "around")[1][0]
    for before, after in (
        ('{"message": "API_KEY\\u003d', '", "step": 3}'),
        ("GET /log?message=API_KEY%3D", "&n=3"),
        ("API_KEY=\x1b[31m", "\x1b[0m step 3"),
        ("export API_KEY=", " && python t.py"),
    ):
        shown = cut_secrets(f"{before}{secret}{after}")
        assert shown.startswith(before) and shown.rstrip().endswith(after[-4:]), shown
    assert cut_secrets(f"a\nAPI_KEY={secret}\nb\n") == "a\nAPI_KEY=[secret]\nb\n"


@pytest.mark.parametrize(
    "text",
    [
        "step:12 - actor/pg_loss:0.106 - prompt_length/mean:512.0 - token_level_rewards:0.5",
        "commit 816344d0c1f2a3b4c5d6e7f8091a2b3c4d5e6f70",
        "wandb: Synced 5 W&B file(s), commit 816344d0c1f2a3b4c5d6e7f8091a2b3c4d5e6f70",
        "NodeID 4f0c9e6f2a7b8c1d3e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "Out of memory: Killed process 4711 (python3) total-vm:9008816kB, anon-rss:1169716kB, shmem-rss:0kB, UID:0",
        "NCCL WARN Cuda failure 2 'out of memory' at 0x7f3b9a8c5d4e",
        'File "/usr/lib/python3/dist-packages/torch/distributed/c10d.py", line 12, in all_reduce',
        "0000:18:00.0 bus id, 12:01:02 up 3 days, load 1.2.3",
        "see https://pytorch.org/docs/stable/notes/cuda.html and https://docs.ray.io/en/latest/x.html",
        "https://github.com/volcengine/verl/issues/1 and https://huggingface.co/Qwen/Qwen2.5-7B",
        "node table: running=3 with status: ok; host memory 17179869184 bytes, node with id",
        "total_tokens: 13812345678, response_token_len 4096, key: value, keys=[1, 2]",
        '[{"name":"max_tokens","value":"4096"},{"name":"tokenizer","value":"Qwen2Fast"},{"name":"eos_token","value":"<|im_end|>"}]',
        '[{"value":"prompt_ids","name":"input_key"},{"name":"DB_PASSWORD","valueFrom":{"secretKeyRef":{"name":"db","key":"password"}}}]',
        '[{"name":"HF_TOKEN","value":"$(TOKEN)"},{"name":"PASSWORD_FILE","value":"/run/secrets/db"},{"name":"KEY","value":"value"}]',
        "C:\\new\\table %d %s 100%25 \\x1b \\u00e9",
    ],
)
def test_evidence_stays(text: str) -> None:
    """Figures, hashes, scopes, libraries and what everyone's logs name."""
    redactor = Redactor(known=["verl"])
    redactor.learn(text)
    assert redactor.text(text) == text


def test_wrapped_lines_stay_lines() -> None:
    """A line that was cut in two is two lines afterwards, and the next line's figures are its own."""
    first = "24907 0.07 python -m trainer.lab run --all --keep /tmp/" + "l" * 25
    text = f"{first}\n24908 0.06 python\n"
    assert len(first) == 80 and redact(text).count("\n") == 2 and "24908 0.06 python" in redact(text)
