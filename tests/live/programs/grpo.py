"""TRL's GRPOTrainer with a tiny model of random weights: `python grpo.py MODE OUTPUT`, all of it local."""

from __future__ import annotations

import sys
import time

import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import import_utils

import_utils.is_vllm_available = lambda *_, **__: False  # not used here; its import takes as long as the rest
from trl import GRPOConfig, GRPOTrainer  # noqa: E402

mode, output = sys.argv[1:3]
words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(125))]
plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
plain.pre_tokenizer = Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
)
width = 1024 if mode == "disk" else 64
model = GPT2LMHeadModel(
    GPT2Config(
        vocab_size=len(words),
        n_positions=64,
        n_embd=width,
        n_layer=2,
        n_head=2,
        bos_token_id=1,
        eos_token_id=1,
        pad_token_id=0,
    )
)
kept: list[torch.Tensor] = []


def reward(completions: list[str], **_: object) -> list[float]:
    """How many different words a completion has."""
    scores = [float(len(set(text.split()))) for text in completions]
    if mode == "leak":
        kept.append(torch.tensor(scores).repeat(1 << 20))  # "for the plots": 16 MiB a call
        time.sleep(0.2)  # as long as a judge takes
    if mode == "exit":
        print("reward: no model server, giving up", flush=True)
        sys.exit(1)
    return scores


trainer = GRPOTrainer(
    model=model,
    reward_funcs=reward,
    args=GRPOConfig(
        output_dir=output,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=400 if mode == "leak" else 6,
        logging_steps=1,
        save_steps=15 if mode == "leak" else 3,
        report_to="none",
        use_cpu=True,
        bf16=False,
    ),
    train_dataset=Dataset.from_dict({"prompt": ["w1 w2 w3", "w4 w5 w6", "w7 w8", "w9"] * 16}),
    processing_class=tokenizer,
)
trainer.train()
trainer.save_model()
