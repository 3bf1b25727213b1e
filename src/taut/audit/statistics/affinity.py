"""The affinity bound of a head: how far its weights can move with the query, whatever the mask.

By theorem affinity-diameter ‖P′ − P‖₂ ≤ (√2/4)·factor·D·‖q′ − q‖₂ with D the largest distance of
two keys. The query is what the model multiplies with the keys, before plain numbers scale it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from taut.audit.statistics.column import Column
from taut.audit.statistics.statistic import Array, RowNumber, Statistic
from taut.models import AttentionRows, Product

if TYPE_CHECKING:
    from taut.audit.statistics.head_state import HeadState

FARTHEST = 32  # keys that are compared pair by pair
ROUNDING = 1 + 1e-5  # of single precision, many times


class Affinity(Statistic):
    """The largest affinity bound of a head over all batches, which the state keeps itself."""

    def numbers(self, norms: Sequence[float]) -> Iterable[RowNumber]:
        """Nothing of single rows: it is found from the keys of a batch."""
        return ()

    def columns(self, state: HeadState) -> Iterable[tuple[Column, Array]]:
        """The upper bound; infinite where the keys were not known."""
        meaning = "bound on the change of the weights in l2 when the query moves by 1, for any mask"
        column = Column(
            "affinity_upper",
            "upper",
            "affinity bound",
            meaning,
            "l2",
            "affinity-diameter",
            ".4g",
            drawn="upper",  # it is found from all keys
        )
        yield column, state.affinity


def affinity(rows: AttentionRows, product: Product | None) -> Array:
    """The bound for every head; infinite where the keys are not known."""
    count, keys_seen = rows.shape[1], rows.reader.keys
    unknown = np.full(count, math.inf)
    if product is None or not product.known or rows.heads is None:
        return unknown
    keys = product.keys.detach().transpose(1, 2)
    keys = keys if keys.dtype == torch.float64 else keys.float()
    if keys.shape[1] != keys_seen and not (product.bent and keys.shape[1] == keys_seen - 1):
        return unknown
    if not keys.shape[0] or rows.heads.numel() % keys.shape[0]:
        return unknown
    width = diameter(keys)
    if product.bent:
        width = torch.maximum(width, keys.norm(dim=-1).amax(dim=-1))
    found = width * (math.sqrt(2) / 4 * product.factor * ROUNDING)
    each = torch.where(torch.isnan(found), math.inf, found).cpu().numpy()
    # Rows come in the order of the product: each of its matrices with the heads that it holds.
    heads = rows.heads.reshape(keys.shape[0], -1).cpu().numpy()
    bound = np.zeros(count)
    np.maximum.at(bound, heads, np.broadcast_to(each[:, None], heads.shape))
    return bound


def diameter(keys: torch.Tensor) -> torch.Tensor:
    """Largest distance of two keys, or a little more; keys are (matrices, keys, width).

    Only keys far from the middle can be far from each other: those are compared pair by pair, and
    any other pair is at most as far apart as the triangle inequality says.
    """
    away = (keys - keys.mean(dim=1, keepdim=True)).norm(dim=-1)
    most = min(FARTHEST, keys.shape[1])
    far, places = away.topk(min(most + 1, keys.shape[1]), dim=-1)
    chosen = keys.gather(1, places[..., :most, None].expand(-1, -1, keys.shape[-1]))
    exact = torch.cdist(chosen, chosen, compute_mode="donot_use_mm_for_euclid_dist")
    found = exact.amax(dim=(-2, -1))
    if most < keys.shape[1]:
        found = torch.maximum(found, far[..., 0] + far[..., most])
    return found
