"""The synthetic task: prompts, tokens, rule-based reward.

The task: a prompt names a class of characters ("digit: "), and the score of a response is the share of all
`max_response_length` characters that belong to it. A policy with random weights scores about 0.1 (0.04 to 0.1 by
class); one that has learned to read the prompt scores near 1. It needs no data set, no pre-training and no download.
"""

from __future__ import annotations

import importlib
import random
import string
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from trainer.config import Config, ConfigError

CLASSES = {
    "digit": string.digits,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "mark": "".join(c for c in string.punctuation),
}


class Tokenizer(Protocol):
    """What the trainer needs of a tokenizer; `ByteTokenizer` and Hugging Face's both have it."""

    pad_token_id: int
    eos_token_id: int

    def encode(self, text: str) -> list[int]: ...
    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str: ...


class ByteTokenizer:
    """Bytes as tokens 0 to 255, then begin, end and padding."""

    bos_token_id, eos_token_id, pad_token_id, vocab_size = 256, 257, 258, 260

    def encode(self, text: str) -> list[int]:
        return [self.bos_token_id, *text.encode()]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        return bytes(token for token in tokens if token < 256).decode(errors="replace")


def character_classes(config: Config) -> Iterator[tuple[str, str]]:
    """(prompt, class) pairs, `data.num_prompts` of them, the same for the same seed."""
    chosen = random.Random(config.train.seed)
    for _ in range(config.data.num_prompts):
        name = chosen.choice(list(CLASSES))
        yield f"{name}: ", name


def share_in_class(response: str, answer: str, length: int) -> float:
    """Share of `length` characters that are in the class that the prompt asked for, 0 to 1."""
    wanted = CLASSES[answer]
    return min(sum(character in wanted for character in response) / length, 1.0)


def find_function(name: str, setting: str) -> Callable[..., Any]:
    """A function by `module:function`.

    Raises:
        ConfigError: there is no such module or function.
    """
    module, _, function = name.partition(":")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
        return found
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise ConfigError(f"{setting}: {name!r}: {error}") from None


class Prompts(torch.utils.data.Dataset[tuple[list[int], str]]):
    """The task's pairs, tokenised when they are asked for: token ids and answer.

    A task that yields its pairs is read into memory; one that returns a sequence (a data set of its own) is asked by
    index.
    """

    def __init__(self, config: Config, tokenizer: Tokenizer) -> None:
        found = find_function(config.data.task, "data.task")(config)
        self.pairs = found if hasattr(found, "__getitem__") else list(found)
        self.encode, self.most = tokenizer.encode, config.data.max_prompt_length

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, index: int) -> tuple[list[int], str]:
        prompt, answer = self.pairs[index]
        return self.encode(prompt)[-self.most :], answer


def pad_left(rows: Sequence[Sequence[int]], pad: int) -> tuple[Tensor, Tensor]:
    """Tokens and mask, (B, longest), padded at the left, so that all responses begin in one column [N+ detail 2]."""
    longest = max(len(row) for row in rows)
    tokens_BP = torch.full((len(rows), longest), pad, dtype=torch.long)
    mask_BP = torch.zeros((len(rows), longest), dtype=torch.long)
    for index, row in enumerate(rows):
        tokens_BP[index, longest - len(row) :] = torch.tensor(row)
        mask_BP[index, longest - len(row) :] = 1
    return tokens_BP, mask_BP


def batches(config: Config, tokenizer: Tokenizer) -> Iterator[tuple[Tensor, Tensor, list[str]]]:
    """Shuffled batches of prompts without end: tokens (B, P), mask (B, P), answers."""
    pad = tokenizer.pad_token_id

    def collate(rows: list[tuple[list[int], str]]) -> tuple[Tensor, Tensor, list[str]]:
        tokens_BP, mask_BP = pad_left([tokens for tokens, _ in rows], pad)
        return tokens_BP, mask_BP, [answer for _, answer in rows]

    loader = torch.utils.data.DataLoader(
        Prompts(config, tokenizer),
        batch_size=config.rollout.batch_size,
        shuffle=True,
        collate_fn=collate,
        num_workers=config.data.num_workers,
        drop_last=config.data.drop_last,
        generator=torch.Generator().manual_seed(config.train.seed),
    )
    while True:
        yield from loader


def end_mask(response_BA: Tensor, eos: int) -> Tensor:
    """1.0 up to and with the first end-of-text of each response, 0.0 behind it, (B, A)."""
    ended_BA = (response_BA == eos).long().cumsum(1)
    return ((ended_BA - (response_BA == eos).long()) == 0).float()
