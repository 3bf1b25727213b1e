"""Cap all matrices of a shape at once: by products where they suffice, else one by one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from taut._base.matrix_norm import spectral
from taut._base.rounding import plus, times
from taut.control.constraints.gram_penalty import without_autocast
from taut.control.constraints.nearest_matrix import nearest_within
from taut.control.constraints.polynomial_cap import polynomial_cap, reach
from taut.control.constraints.proved_norms import (
    WIDEST,
    Grams,
    Indices,
    Numbers,
    frobenius,
    grams,
    proved_norms,
    unit,
)

METHODS = ("exact", "soft_cap", "hard_cap", "normalise")
POWERS = {"soft_cap": (1,), "hard_cap": (32, 16, 8)}  # the first that reaches far enough is taken
USED = 0.2  # share of a reserve: capping more often than needed costs less than proving more often
AT_ONCE = 1 << 24  # entries that are capped at a time
# Tall matrices, their Gram matrices, norms and limit, and the precision that the result is kept in:
# the matrices with upper bounds on their norms, which prove nothing where they are NaN.
Attempt = Callable[[torch.Tensor, Grams, Numbers, float, torch.dtype], tuple[torch.Tensor, Numbers]]


class CappedStack(NamedTuple):
    """Matrices, upper bounds on their norms, which have changed, and which of those one by one."""

    matrices: torch.Tensor
    bounds: Numbers
    changed: Indices
    alone: Indices


def capped_stack(
    stack: torch.Tensor,
    limit: float,
    method: str,
    reserve: float = 0.0,
    guesses: Numbers | None = None,
) -> CappedStack:
    """Cap finite matrices (b, m, n); those that are within the limit stay as they are.

    With a reserve, matrices that have used up a fifth of it are brought to limit·(1 − reserve).
    Guesses of norms, if there are any, are tried first.
    """
    size = max(1, AT_ONCE // stack[0].numel())
    parts = [
        _capped(
            stack[i : i + size],
            limit,
            method,
            reserve,
            None if guesses is None else guesses[i : i + size],
        )
        for i in range(0, len(stack), size)
    ]
    if len(parts) == 1:
        return parts[0]
    bounds = np.concatenate([part.bounds for part in parts])
    changed, alone = (
        np.concatenate([part[field] + size * i for i, part in enumerate(parts)]) for field in (2, 3)
    )
    return CappedStack(torch.cat([part.matrices for part in parts]), bounds, changed, alone)


def _capped(
    stack: torch.Tensor, limit: float, method: str, reserve: float, guesses: Numbers | None
) -> CappedStack:
    tall = stack if stack.shape[1] >= stack.shape[2] else stack.mT
    exponent = round(math.log2(limit))
    near_one = math.ldexp(limit, -exponent)  # a power of two, so that scaling rounds nothing
    enough, target = near_one * (1 - (1 - USED) * reserve), near_one * (1 - reserve)
    with without_autocast([stack]):
        scaled = tall.to(_precision(tall)) * 2.0**-exponent
        found = grams(scaled)
        scaled_guesses = None if guesses is None else np.ldexp(guesses, -exponent)
        norms = proved_norms(found, enough, scaled_guesses)
        over = left = np.flatnonzero(~(norms <= enough))
        if not len(over):
            return CappedStack(stack, np.ldexp(norms, exponent), over, over)
        new, bounds = tall.clone(), norms.copy()
        for far, attempt in _attempts(method):
            chosen = left[norms[left] <= far * target]
            if not len(chosen):
                continue
            rows = torch.from_numpy(chosen)
            some = Grams(found.products[rows], found.errors[chosen])
            results, tops = attempt(scaled[rows], some, norms[chosen], target, tall.dtype)
            proved = tops <= target
            new[rows[proved]] = results[torch.from_numpy(proved)] * 2.0**exponent
            bounds[chosen[proved]] = tops[proved]
            left = np.setdiff1d(left, chosen[proved])
    alone = _divided_alone if method == "normalise" else nearest_within
    for i in left.tolist():
        new[i] = alone(tall[i], limit * (1 - reserve))
        bounds[i] = near_one
    return CappedStack(new if tall is stack else new.mT, np.ldexp(bounds, exponent), over, left)


def _precision(stack: torch.Tensor) -> torch.dtype:
    """Single precision, if it is computed as such and proves something useful."""
    exact = torch.get_float32_matmul_precision() == "highest"
    return stack.dtype if exact and stack.shape[2] <= WIDEST else torch.float64


def _attempts(method: str) -> list[tuple[float, Attempt]]:
    """Ways to cap by products, and how many times the limit they take."""
    if method == "normalise":
        return [(math.inf, _divided)]
    return [(reach(k), partial(polynomial_cap, power=k)) for k in POWERS.get(method, ())]


def _divided(
    stack: torch.Tensor, _: Grams, norms: Numbers, limit: float, kept: torch.dtype
) -> tuple[torch.Tensor, Numbers]:
    """Divided by their norms: factor and product are rounded, and the result to be kept."""
    norms = np.where(np.isfinite(norms), norms, np.nan)
    lost = times(2 * unit(stack.dtype) + 2 * unit(kept), frobenius(stack), limit) / norms
    factors = (limit - 1.25 * lost) / norms
    result = stack * torch.from_numpy(factors).to(stack)[:, None, None]
    return result.to(kept), np.where(np.isnan(norms), np.nan, plus(limit - 1.2 * lost, lost))


def _divided_alone(matrix: torch.Tensor, limit: float) -> torch.Tensor:
    """One matrix divided by its norm in double precision; a margin covers what rounding adds."""
    wide = matrix.double()  # brought near 1 by a power of two, so that no factor underflows
    wide = torch.ldexp(wide, torch.tensor(-math.frexp(float(wide.abs().max()))[1]))
    below = 1 - 4 * unit(matrix.dtype) * (1 + math.sqrt(min(matrix.shape)))
    return (wide * (below * limit / spectral(wide.cpu().numpy()))).to(matrix.dtype)
