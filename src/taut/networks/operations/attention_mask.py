"""What queries see: masks of every shape that broadcasts, and fixed terms of the scores."""

from __future__ import annotations

import math

import torch

from taut.networks.operations.setting import Setting


def visible(mask: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A mask as (batch, 1 or heads, queries, keys), for scores of this ``shape``.

    Every query has its own row, however the mask was written: bounds count the rows.
    """
    if mask.dtype != torch.bool:
        raise TypeError(f"a mask must be of bool, True for what is seen, got {mask.dtype}")
    batch, heads, n, m = shape
    four = {2: mask[None, None], 3: mask[:, None], 4: mask}.get(mask.ndim)
    fits = four is not None and four.shape[1] in (1, heads)
    if four is None or not fits or not _broadcasts(four, (batch, n, m)):
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not fit {n} queries and {m} "
            f"keys of {batch} samples"
        )
    seen = four.expand(batch, -1, n, m)
    if not bool(seen.any(dim=-1).all()):
        raise ValueError("a mask leaves some query without any key: its output is undefined")
    return seen


def _broadcasts(mask: torch.Tensor, shape: tuple[int, ...]) -> bool:
    sizes = (mask.shape[0], *mask.shape[2:])
    return all(size in (1, wanted) for size, wanted in zip(sizes, shape, strict=True))


def score_term(
    run: Setting, seen: torch.Tensor | None, bias: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Mask and bias as one term of the scores, −inf where a query does not see a key."""
    fixed = None if bias is None else run.tensor(bias).expand(shape)
    if seen is None:
        return fixed
    plain = torch.zeros((), dtype=torch.float64, device=run.device)
    return torch.where(seen, plain if fixed is None else fixed, -math.inf).expand(shape)
