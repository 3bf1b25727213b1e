"""Tiny Shakespeare as tokens: the text that the small models here are trained on."""

from __future__ import annotations

import gzip
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

HELD_OUT = 0.1  # of the text, its end, is not trained on
END = "<|endoftext|>"


def plays() -> tuple[str, str]:
    """The text to train on, and the text to test with."""
    packed = Path(__file__).parent / "shakespeare.txt.gz"
    text = gzip.decompress(packed.read_bytes()).decode("utf-8")
    cut = text.index("\n\n", int(len(text) * (1 - HELD_OUT))) + 2
    return text[:cut], text[cut:]


def tokenizer_for(text: str, vocabulary: int) -> PreTrainedTokenizerFast:
    """Pairs of bytes merged into the most frequent pieces of words."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(text.split("\n\n"), trainer)
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token=END, pad_token=END)


def tokens(tokenizer: PreTrainedTokenizerFast, text: str) -> torch.Tensor:
    """A long row of numbers."""
    return torch.tensor(tokenizer(text)["input_ids"])


def batch(row: torch.Tensor, size: int, length: int, source: torch.Generator) -> torch.Tensor:
    """Pieces of the row from random places."""
    starts = torch.randint(len(row) - length, (size, 1), generator=source)
    return row[starts + torch.arange(length)]
