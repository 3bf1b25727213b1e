"""The recipe of Nair 2025 on every row of attention: a random direction each, all steps and norms.

``taut.empirical_lipschitz`` does the same in double precision and takes a hundred times as long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from taut.models import HIDDEN, ScoreBlock, measure_rows
from taut.reproduce.kept_arrays import Arrays

if TYPE_CHECKING:
    from taut.models import AttentionRows

LARGEST_STEP = 64.0  # exponentials of larger ones overflow in single precision


class RandomSteps:
    """Largest ratios of all rows of a layer along random directions, (step sizes, norms)."""

    def __init__(self, epsilons: Sequence[float], norms: Sequence[float], seed: int) -> None:
        if max(epsilons) > LARGEST_STEP:
            raise ValueError(f"step sizes must be at most {LARGEST_STEP:g}, got {max(epsilons):g}")
        self.epsilons, self.norms, self.seed = tuple(epsilons), tuple(norms), seed

    def __call__(self, layer: int, first: int, rows: AttentionRows) -> Arrays:
        """The largest ratios, and the number of rows: all that see two keys or more."""
        source = torch.Generator().manual_seed(
            int(np.random.default_rng((self.seed, layer, first)).integers(1 << 62))
        )
        last: list[tuple[ScoreBlock, torch.Tensor]] = []

        def ratio(block: ScoreBlock, at: int) -> torch.Tensor:
            if not last or last[0][0] is not block:
                last[:] = [(block, step_ratios(block.scores, self.epsilons, self.norms, source))]
            return last[0][1][at]

        count = len(self.epsilons) * len(self.norms)
        more: Any = {str(at): lambda block, at=at: ratio(block, at) for at in range(count)}
        found = measure_rows(rows, more=more, quick=True)
        moved = found.kept & (found.values["seen"] > 1)
        most = [found.values[name][moved].max(initial=0.0) for name in more]
        shape = (1, len(self.epsilons), len(self.norms))
        return {"largest": np.reshape(most, shape), "rows": np.array([moved.sum()])}


def step_ratios(
    scores: torch.Tensor, epsilons: Sequence[float], norms: Sequence[float], source: Any
) -> torch.Tensor:
    """‖σ(x + δ) − σ(x)‖_p / ‖δ‖_p of every row, rounded down: (step sizes · norms, ...).

    A row is moved along one Gaussian direction, made as long as each step in each norm. With
    g = exp(δ) − 1 and its mean under σ(x), the change is σ(x)(g − mean)/(1 + mean): two nearby
    softmaxes are never subtracted, so that single precision suffices. Each of the few operations
    errs by units in the last place, sums by their depth more.
    """
    seen = scores > HIDDEN
    weights = scores.masked_fill(~seen, -math.inf).softmax(dim=-1)
    drawn = torch.randn(scores.shape, generator=source, dtype=scores.dtype)
    drawn = drawn.to(scores.device).mul_(seen)
    slack = (16 + 2 * math.log2(scores.shape[-1])) * torch.finfo(scores.dtype).eps
    found = scores.new_empty((len(epsilons), len(norms), *scores.shape[:-1]))
    moved = torch.empty_like(drawn)
    for j, p in enumerate(norms):
        unit = drawn / lp_length(drawn.clone(), p).clamp(min=torch.finfo(scores.dtype).tiny)
        for i, epsilon in enumerate(epsilons):
            torch.mul(unit, epsilon, out=moved).expm1_()
            mean = torch.linalg.vecdot(weights, moved)[..., None]
            moved.sub_(mean).mul_(weights)
            ratio = lp_length(moved, p) / (1 + mean) / epsilon
            found[i, j] = (ratio[..., 0] * (1 - slack) - slack).clamp(min=0)
    return found.flatten(0, 1)


def lp_length(x: torch.Tensor, p: float) -> torch.Tensor:
    """The norm in l_p along the last axis, which is kept; ``x`` may be overwritten.

    Powers of single numbers take ten times as long as squares, and they underflow.
    """
    halvings = math.log2(p) if p > 2 and not math.isinf(p) else 0.5
    if halvings != int(halvings):
        plain: torch.Tensor = torch.linalg.vector_norm(x, p, dim=-1, keepdim=True)
        return plain
    top = torch.linalg.vector_norm(x, math.inf, dim=-1, keepdim=True)
    x.div_(top.clamp(min=torch.finfo(x.dtype).tiny))
    for _ in range(int(halvings) - 1):
        x.mul_(x)
    found: torch.Tensor = top * torch.linalg.vector_norm(x, 2, dim=-1, keepdim=True) ** (2 / p)
    return found
