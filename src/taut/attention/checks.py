"""Checks of balls of tokens, masks and biases."""

from __future__ import annotations

from typing import Any

import numpy as np

from taut._base.array import Array, to_host
from taut._base.checks import (
    as_float_array,
    finite_at_least_zero,
    in_range,
    real_number,
    whole_number,
)
from taut._base.domain import Ball
from taut._base.matrix_norm import Matrix

MOST = 10**8  # tokens


def numbers(x: Array, *, name: str, ndim: int = 2) -> Matrix:
    """The values as a finite float64 array with ``ndim`` axes, none of them empty.

    Half and single precision are exact in float64, so nothing is lost on the way.
    """
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array; leave out what is masked, or use mask=")
    _, x = as_float_array(x, name=name)
    found = np.asarray(to_host(x), dtype=np.float64)
    if found.ndim != ndim or 0 in found.shape:
        raise ValueError(
            f"{name} must have {ndim} non-empty axes, its shape is {found.shape}; for a batch, "
            "call once for each element"
        )
    if not np.isfinite(found).all():
        raise ValueError(f"{name} contains NaN or infinity; a bound needs finite numbers")
    size = float(np.abs(found).max())
    if size != 0:
        in_range(size, name=f"the size of {name}")
    return found


def length(value: float, *, name: str) -> float:
    """Check a finite number ≥ 0 of a size that can be squared."""
    found = finite_at_least_zero(value, name=name)
    return found if found == 0 else in_range(found, name=name)


def count(value: int, *, name: str) -> int:
    """Check a number of tokens."""
    found = whole_number(value, name=name, least=1)
    if found > MOST:
        raise ValueError(f"{name} must be at most {MOST}, got {found}")
    return found


def ball(
    domain: Ball | float, n: int | None, width: int, *, name: str, otherwise: int | None = None
) -> tuple[Ball, int]:
    """A ball of tokens of this width, or its radius, and how many tokens there are.

    The number of tokens is that of its shape, or n, or ``otherwise``.
    """
    found = domain if isinstance(domain, Ball) else Ball(real_number(domain, name=name))
    length(found.radius, name=f"the radius of {name}")
    if found.shape is not None:
        if len(found.shape) != 2 or found.shape[1] != width:
            raise ValueError(
                f"{name} must hold tokens of width {width}: its shape must be (tokens, {width}), "
                f"got {found.shape}"
            )
        if n not in (None, found.shape[0]):
            raise ValueError(f"{name} has {found.shape[0]} tokens by its shape, and n = {n}")
        n = found.shape[0]
    n = otherwise if n is None else n
    if n is None:
        raise ValueError(f"{name} needs a number of tokens: n=16, or Ball(1.0, shape=(16, 64))")
    return found, count(n, name="n")


def visible(mask: Array, causal: bool, shape: tuple[int, int]) -> np.ndarray[Any, np.dtype[Any]]:
    """Which key (column) each query (row) sees: True where it does, as in torch's boolean masks."""
    n, m = shape
    seen = np.ones(shape, dtype=bool)
    if mask is not None:
        given = np.asarray(to_host(mask))
        if given.dtype != bool:
            raise TypeError(
                f"mask must be boolean, True where a query sees a key, got {given.dtype}; pass "
                "finite additive terms as bias"
            )
        try:
            seen = seen & np.broadcast_to(given, shape)
        except ValueError:
            raise ValueError(
                f"mask must be of shape {shape} (queries, keys), got {given.shape}"
            ) from None
    if not isinstance(causal, (bool, np.bool_)):
        raise TypeError(f"causal must be True or False, got {causal!r}")
    if causal:
        if n != m:
            raise ValueError(f"a causal mask needs as many queries as keys, got {n} and {m}")
        seen = seen & np.tri(n, dtype=bool)
    blind = np.flatnonzero(~seen.any(axis=1))
    if blind.size:
        raise ValueError(
            f"query {blind[0]} sees no key at all and its softmax is undefined; leave it out"
        )
    return seen


def additive(bias: Array, shape: tuple[int, ...]) -> Matrix | None:
    """The fixed term that is added to the scores, of shape (queries, keys) or (heads, …)."""
    if bias is None:
        return None
    _, found = as_float_array(bias, name="bias")
    found = np.asarray(to_host(found), dtype=np.float64)
    if not np.isfinite(found).all():
        raise ValueError("bias must be finite; pass masked entries as mask")
    try:
        return np.broadcast_to(found, shape)
    except ValueError:
        raise ValueError(
            f"bias must be of shape {shape[1:]} (queries, keys) or {shape} with the heads first, "
            f"got {found.shape}"
        ) from None
