"""Batches of pairs of about the same length, in an order that a seed and a step decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from taut.reproduce.seq2seq.corpus import Pair
from taut.reproduce.seq2seq.subwords import PAD, Subwords

Encoded = tuple[list[int], list[int]]
IGNORED = -100  # labels that do not count, for torch and transformers


def encoded(
    subwords: Subwords, pairs: Sequence[Pair], longest: int, *, latest: bool = False
) -> list[Encoded]:
    """Pairs as numbers; with ``latest`` sources that are too long lose their beginning."""
    sources = subwords.encode([source for source, _ in pairs], longest, latest=latest)
    targets = subwords.encode([target for _, target in pairs], longest)
    return list(zip(sources, targets, strict=True))


def grouped(pairs: Sequence[Encoded], pieces: int, seed: int | None = None) -> list[list[int]]:
    """Numbers of pairs in batches of at most so many pieces, with padding, on the longer side.

    With a seed, pairs of equal length and the batches are in random order; without, sorted.
    """
    lengths = np.array([max(len(source), len(target)) for source, target in pairs])
    if not len(lengths):
        return []
    source = np.random.default_rng(seed)
    ties = source.permutation(len(pairs)) if seed is not None else np.arange(len(pairs))
    batches: list[list[int]] = [[]]
    longest = 0
    for place in ties[np.argsort(lengths[ties], kind="stable")]:
        longest = max(longest, int(lengths[place]))
        if batches[-1] and longest * (len(batches[-1]) + 1) > pieces:
            batches.append([])
            longest = int(lengths[place])
        batches[-1].append(int(place))
    if seed is None:
        return batches
    return [batches[i] for i in source.permutation(len(batches))]


def endless(
    pairs: Sequence[Encoded], pieces: int, seed: int, first: int = 0
) -> Iterator[list[int]]:
    """Batches of one pass over the data after the other, from batch number ``first`` on.

    What a batch holds depends on the seed and its number alone, so that a training that goes on
    sees what it would have seen.
    """
    number, epoch = 0, 0
    while True:
        batches = grouped(pairs, pieces, seed * 1_000_003 + epoch)
        yield from batches[max(first - number, 0) :]
        number, epoch = number + len(batches), epoch + 1


def tensors(pairs: Sequence[Encoded], batch: Sequence[int]) -> dict[str, Any]:
    """Arguments of the model, and the labels."""
    import torch

    sources, targets = (_padded([pairs[i][side] for i in batch]) for side in (0, 1))
    x, y = torch.from_numpy(sources), torch.from_numpy(targets)
    begun = torch.full_like(y, PAD)  # the decoder starts with padding, and sees what came before
    begun[:, 1:] = y[:, :-1]
    real = y != PAD  # also what tells constraints and audits that a row is padding
    return {
        "input_ids": x,
        "attention_mask": (x != PAD).long(),
        "decoder_input_ids": begun,
        "decoder_attention_mask": real.long(),
        "labels": y.masked_fill(~real, IGNORED),
    }


def _padded(rows: list[list[int]]) -> np.ndarray[Any, np.dtype[np.int64]]:
    found = np.full((len(rows), max(map(len, rows))), PAD, dtype=np.int64)
    for place, row in enumerate(rows):
        found[place, : len(row)] = row
    return found
