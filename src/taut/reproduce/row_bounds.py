"""θ, the exact l2 constant, and bounds of it from the literature, of every attention row."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from taut._softmax import local_lipschitz, theta_sides
from taut.models import HIDDEN, ScoreBlock, measure_rows
from taut.reproduce.kept_arrays import Arrays

if TYPE_CHECKING:
    from taut.models import AttentionRows

KEYS = 8  # rows that see fewer are left out, as audits keep them apart
ROUNDING = 1 + 1e-12  # of sums and products in double precision, many times
NUMBERS = ("theta", "theta_upper", "lower", "upper", "largest", "two_largest")


def bounds_of_layer(layer: int, first: int, rows: AttentionRows) -> Arrays:
    """Numbers of the rows of a layer that see at least 8 keys, and where each row is.

    ``theta`` is the lower side of the constant from l∞ to l1, and ``two`` the exact l2 constant.
    ``largest`` is 2s₁(1 − s₁) and ``two_largest`` s₁(1 − s₁ + s₂), with s₁ ≥ s₂ the largest
    probabilities: both bound ``two``, and ``broken`` says where the second does not.
    """
    last: list[tuple[ScoreBlock, torch.Tensor]] = []

    def number(block: ScoreBlock, at: int) -> torch.Tensor:
        if not last or last[0][0] is not block:
            last[:] = [(block, numbers_of_rows(block.scores))]
        return last[0][1][at]

    more: Any = {
        name: lambda block, at=at: number(block, at) for at, name in enumerate(NUMBERS)
    }  # fmt: skip
    found = measure_rows(rows, more=more, quick=True)
    values = found.values
    chosen = found.kept & (values["seen"] >= KEYS)
    sample, head, _ = np.nonzero(chosen)
    picked = {name: values[name][chosen] for name in NUMBERS}
    broken = ~(picked["two_largest"] * ROUNDING >= picked["lower"])  # NaN is broken
    return {
        "layer": np.full(len(head), layer, dtype=np.int32),
        "head": head.astype(np.int32),
        "sample": (first + rows.samples[sample]).astype(np.int32),
        "query": rows.queries[chosen].astype(np.int32),
        "theta": picked["theta"],
        "theta_width": (picked["theta_upper"] - picked["theta"]).astype(np.float32),
        "two": picked["upper"],
        "largest": picked["largest"],
        "two_largest": picked["two_largest"],
        "broken": broken,
    }


def numbers_of_rows(scores: torch.Tensor) -> torch.Tensor:
    """The numbers of every row, in double precision: (numbers, ...)."""
    x = scores.double().masked_fill(scores <= HIDDEN, -math.inf).cpu()
    flat = x.reshape(-1, x.shape[-1])
    blind = torch.isinf(flat).all(dim=-1, keepdim=True)  # such rows do not count
    flat = torch.where(blind, torch.zeros_like(flat), flat)
    weights = flat.softmax(dim=-1)
    top, place = weights.max(dim=-1, keepdim=True)
    others = weights.scatter(-1, place, 0.0)
    # 1 − s₁ as the sum of the others: where they are few, the difference would be rounding.
    rest, second = others.sum(dim=-1), others.amax(dim=-1)
    theta = [torch.from_numpy(np.asarray(side)) for side in theta_sides(weights.numpy())]
    exact = local_lipschitz(flat.numpy(), p=2)
    sides = [torch.from_numpy(np.asarray(side)) for side in (exact.lower, exact.upper)]
    bounds = [2 * top[:, 0] * rest, top[:, 0] * (rest + second)]
    return torch.stack([*theta, *sides, *bounds]).reshape(len(NUMBERS), *scores.shape[:-1])
