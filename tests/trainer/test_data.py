"""Tokens, padding, the end-of-text mask, batches and the synthetic task's reward."""

from __future__ import annotations

import itertools
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("omegaconf")

from trainer import data  # noqa: E402
from trainer.config import Config, ConfigError, read_config  # noqa: E402

QUICK = settings(max_examples=60, deadline=None, database=None, derandomize=True)
TOKENIZER = data.ByteTokenizer()
EOS, PAD = TOKENIZER.eos_token_id, TOKENIZER.pad_token_id


def config(*words: str) -> Config:
    """A small configuration of batches of 4 prompts out of 10."""
    small = ["data.num_prompts=10", "rollout.batch_size=4", "train.mini_batch_size=4", "train.micro_batch_size=2"]
    return read_config(None, [*small, *words])


def numbered(config: Config) -> list[tuple[str, str]]:
    """A task whose prompts can be told apart; as long as their number."""
    return [("x" * number, str(number)) for number in range(config.data.num_prompts)]


NUMBERED = f"data.task={__name__}:numbered"


def answers_of(config: Config, count: int) -> list[str]:
    """The answers of that many batches, in order."""
    taken = itertools.islice(data.batches(config, TOKENIZER), count)
    return [answer for *_, answers in taken for answer in answers]


# --- tokens ------------------------------------------------------------------------------------


@QUICK
@given(st.text())
def test_round_trip(text: str) -> None:
    """Any text comes back from its bytes, without the token that begins it."""
    assert text == TOKENIZER.decode(TOKENIZER.encode(text))


def test_encode() -> None:
    """A begin token, then one token a byte of UTF-8."""
    assert TOKENIZER.encode("aä") == [256, 97, 195, 164]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([], ""),
        ([256, 104, 105, 257, 258, 258, 259], "hi"),
        ([104, 257, 105], "hi"),
        ([0xC3], "�"),
        ([0xFF, 104, 0xC3, 105], "�h�i"),
    ],
    ids=["nothing", "special tokens", "special within", "half a character", "no UTF-8"],
)
def test_decode(tokens: list[int], expected: str) -> None:
    """Special tokens are left out, and bytes that are no text (a policy writes any) are replaced."""
    assert expected == TOKENIZER.decode(tokens)


def test_special_tokens() -> None:
    """Begin, end and padding are three tokens beyond the bytes, all below the vocabulary's size."""
    special = {TOKENIZER.bos_token_id, EOS, PAD}
    assert (len(special), min(special) > 255, max(special) < TOKENIZER.vocab_size) == (3, True, True)


# --- padding and masks -------------------------------------------------------------------------


def test_pad_left() -> None:
    """Shorter rows are padded at the left; the mask is 1 at what was there."""
    tokens_BP, mask_BP = data.pad_left([[1, 2, 3], [4]], pad=9)
    assert tokens_BP.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert mask_BP.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert (torch.long, torch.long) == (tokens_BP.dtype, mask_BP.dtype)


@QUICK
@given(st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=9), min_size=1, max_size=5))
def test_pad_left_keeps_the_rows(rows: list[list[int]]) -> None:
    """Under its mask each row is what it was, padding token among its tokens or not."""
    tokens_BP, mask_BP = data.pad_left(rows, PAD)
    assert rows == [row[mask > 0].tolist() for row, mask in zip(tokens_BP, mask_BP, strict=True)]
    assert max(map(len, rows)) == tokens_BP.shape[1]


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ([1, 2, 3, 4], [1, 1, 1, 1]),
        ([1, 2, EOS, PAD], [1, 1, 1, 0]),
        ([1, EOS, 2, EOS], [1, 1, 0, 0]),
        ([EOS, EOS, EOS, EOS], [1, 0, 0, 0]),
        ([1, 2, 3, EOS], [1, 1, 1, 1]),
        ([1, PAD, 2, EOS], [1, 1, 1, 1]),
    ],
    ids=["never ends", "ends", "first end counts", "ends at once", "ends at the last", "padding that the policy wrote"],
)
def test_end_mask(response: list[int], expected: list[int]) -> None:
    """1 up to and with the first end-of-text, 0 behind it; only end-of-text ends a response."""
    found = data.end_mask(torch.tensor([response]), EOS)
    assert [expected] == found.tolist()
    assert torch.float32 == found.dtype


def test_end_mask_where_padding_is_the_end() -> None:
    """Tokenizers without a padding token pad with end-of-text, of which the first still counts."""
    assert data.end_mask(torch.tensor([[5, 2, 2, 2]]), eos=2).tolist() == [[1, 1, 0, 0]]


# --- the task ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("response", "answer", "expected"),
    [
        ("0123", "digit", 1.0),
        ("01ab", "digit", 0.5),
        ("01", "digit", 0.5),
        ("", "digit", 0.0),
        ("aB1!", "upper", 0.25),
        ("aB1!", "lower", 0.25),
        ("aB1!", "mark", 0.25),
        ("ä²٣ ", "digit", 0.0),
    ],
    ids=["all", "half", "ended early", "nothing", "upper", "lower", "mark", "not ASCII"],
)
def test_share_in_class(response: str, answer: str, expected: float) -> None:
    """The share of the four characters that might have been written: ending early does not pay."""
    assert expected == data.share_in_class(response, answer, 4)


def test_share_is_at_most_1() -> None:
    """A response of 4 tokens with three digits each scores 1, not 3."""
    assert data.share_in_class("123" * 4, "digit", 4) <= 1.0


def test_classes() -> None:
    """The classes share no character, and together are all that ASCII can print but the space."""
    characters = "".join(data.CLASSES.values())
    assert sorted(set(characters)) == sorted(characters)
    assert set(string.printable) - set(string.whitespace) == set(characters)


def test_character_classes() -> None:
    """As many pairs as asked for, each prompt naming its class, and all classes among them."""
    pairs = list(data.character_classes(config("data.num_prompts=100")))
    assert len(pairs) == 100
    assert {(f"{name}: ", name) for name in data.CLASSES} == set(pairs)


def test_character_classes_by_seed() -> None:
    """The same seed makes the same prompts, another seed others."""
    first, again, other = (list(data.character_classes(config(f"train.seed={seed}"))) for seed in (1, 1, 2))
    assert first == again
    assert first != other


# --- functions by name -------------------------------------------------------------------------


def test_find_function() -> None:
    """`module:function` is the function."""
    assert data.share_in_class is data.find_function("trainer.data:share_in_class", "reward.function")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere:f", "reward.function: 'nowhere:f': No module named 'nowhere'"),
        ("json:nothing", "reward.function: 'json:nothing': module 'json' has no attribute 'nothing'"),
        ("json", "reward.function: 'json': module 'json' has no attribute ''"),
        (":f", "reward.function: ':f': Empty module name"),
        ("", "reward.function: '': Empty module name"),
    ],
)
def test_function_that_is_not_there(name: str, expected: str) -> None:
    """A name without module or function is refused with the setting and the name."""
    with pytest.raises(ConfigError) as caught:
        data.find_function(name, "reward.function")
    assert expected == str(caught.value)


def test_function_of_a_relative_module() -> None:
    """A relative module is refused like any other that is not there."""
    with pytest.raises(ConfigError):
        data.find_function(".rewards:f", "reward.function")


# --- batches -----------------------------------------------------------------------------------


def test_prompts() -> None:
    """One row a prompt: its tokens, cut at the left to the longest allowed, and its answer."""
    prompts = data.Prompts(config(NUMBERED, "data.max_prompt_length=3"), TOKENIZER)
    assert len(prompts) == 10
    assert prompts[0] == ([256], "0")
    assert prompts[2] == ([256, 120, 120], "2")
    assert prompts[9] == ([120, 120, 120], "9")


def test_batch() -> None:
    """Tokens and mask are as wide as the longest prompt of the batch, and the answers stay with their rows."""
    tokens_BP, mask_BP, answers = next(data.batches(config(NUMBERED), TOKENIZER))
    lengths = mask_BP.sum(1)
    assert (4, int(lengths.max())) == tokens_BP.shape == mask_BP.shape
    assert answers == [str(length - 1) for length in lengths.tolist()]  # one token is the begin of text


def test_batches_leave_out_the_rest() -> None:
    """Of 10 prompts in batches of 4, two are left out of each pass; no prompt comes twice in one."""
    answers = answers_of(config(NUMBERED), 2)
    assert (len(answers), len(set(answers))) == (8, 8)


def test_batches_with_the_rest() -> None:
    """Without `drop_last` a pass ends with a batch of two, and has every prompt once."""
    batches = itertools.islice(data.batches(config(NUMBERED, "data.drop_last=false"), TOKENIZER), 3)
    sizes = [len(answers) for *_, answers in batches]
    assert sizes == [4, 4, 2]
    assert {str(number) for number in range(10)} == set(answers_of(config(NUMBERED, "data.drop_last=false"), 3))


def test_batches_never_end() -> None:
    """A new pass follows the last one, in another order."""
    answers = answers_of(config(NUMBERED, "data.num_prompts=8"), 6)
    first, second, third = answers[:8], answers[8:16], answers[16:]
    assert sorted(first) == sorted(second) == sorted(third)
    assert len({tuple(first), tuple(second), tuple(third)}) == 3


def test_batches_by_seed() -> None:
    """The same seed makes the same batches over several passes, whatever others draw from torch; another seed others."""
    torch.manual_seed(1)
    first = answers_of(config(NUMBERED, "train.seed=1"), 7)
    torch.manual_seed(2)
    assert first == answers_of(config(NUMBERED, "train.seed=1"), 7)
    assert first != answers_of(config(NUMBERED, "train.seed=2"), 7)


def test_batches_draw_nothing() -> None:
    """Making batches leaves torch's own random numbers alone: rollouts draw from them."""
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    answers_of(config(NUMBERED), 5)
    assert torch.equal(expected, torch.rand(3))
