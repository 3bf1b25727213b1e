"""What comes in: finite matrices of float64, positive numbers, and which key each query may see."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut._array import Array, to_host
from taut._checks import as_float_array, finite_at_least_zero, real_number, whole_number

Matrix = np.ndarray[Any, np.dtype[np.float64]]

SMALLEST, LARGEST = 1e-40, 1e40  # of weights, tokens and factors
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
        _in_range(size, name=f"the size of {name}")
    return found


def positive(value: float, *, name: str) -> float:
    """Check a finite number > 0 of a size that can be squared."""
    found = real_number(value, name=name)
    if not 0 < found < math.inf:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return _in_range(found, name=name)


def length(value: float, *, name: str) -> float:
    """Check a finite number ≥ 0 of a size that can be squared."""
    found = finite_at_least_zero(value, name=name)
    return found if found == 0 else _in_range(found, name=name)


def count(value: int, *, name: str) -> int:
    """Check a number of tokens."""
    found = whole_number(value, name=name, least=1)
    if found > MOST:
        raise ValueError(f"{name} must be at most {MOST}, got {found}")
    return found


def _in_range(size: float, *, name: str) -> float:
    """Refuse what products of weights and tokens, squared, would over- or underflow by."""
    if not SMALLEST <= size <= LARGEST:
        raise ValueError(
            f"{name} is {size:.3g}, out of range [{SMALLEST:g}, {LARGEST:g}]: rescale it"
        )
    return size


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
