"""The largest score of every head in one attention, in blocks, without all scores at once."""

from __future__ import annotations

import torch

from taut.models.attention_calls import Products, Scores
from taut.models.masks import HIDDEN
from taut.models.score_blocks import FusedScores


@torch.no_grad()
def largest_scores(seen: Products | Scores, *, absolute: bool = False) -> torch.Tensor:
    """The largest score, or absolute value of a score, that a head's queries have with a key.

    Keys that are hidden do not count. Of a fused kernel these are the scaled products of queries
    and keys; a model that computes its scores in the open has its biases in them. Heads that see no
    key have −∞.
    """
    if isinstance(seen, Scores):
        return _largest(seen.scores, seen.scores < HIDDEN, absolute=absolute)
    query, key = seen.query, seen.key
    most = query.new_full((query.shape[1],), -torch.inf)
    # Biases move scores, but queries and keys do not scale them: only what they hide counts.
    shown = None if seen.bias is None else seen.bias > HIDDEN
    for block in FusedScores(query, key, shown, seen.factor, seen.causal).blocks():
        found = _largest(block.scores, block.scores == -torch.inf, absolute=absolute)
        heads = block.place[1]
        most[heads] = torch.maximum(most[heads], found)
    return most


def _largest(scores: torch.Tensor, hidden: torch.Tensor, *, absolute: bool) -> torch.Tensor:
    """Of each head, (samples, heads, queries, keys); NaN stays."""
    scores = scores.abs() if absolute else scores
    return scores.masked_fill(hidden, -torch.inf).amax(dim=(0, 2, 3))
