"""Blocks of rows of logits of one length that are hard for floating point, made at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fuzz.case import Array

LONGEST = 8192
# The ends of the vectors, blocks and batches of the compiled kernel, and their neighbours.
_EDGES = (1, 2, 3, 4, 5, 8, 15, 16, 17, 24, 25, 31, 32, 33, 63, 64, 65, 127, 128, 129, 191, 192,
          193, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025, 2048, 4096, 4097, 8191,
          8192)  # fmt: skip


def length(rng: np.random.Generator, longest: int = LONGEST, *, only_edges: bool = False) -> int:
    """A number of logits: often small, often at an edge."""
    if only_edges or rng.random() < 0.4:
        return int(rng.choice([n for n in _EDGES if n <= longest]))
    return int(np.exp(rng.uniform(np.log(2), np.log(longest + 1))))


def _spread(rng: np.random.Generator, rows: int, low: float, high: float) -> Array:
    """A size for each row, between 10^low and 10^high."""
    return 10 ** rng.uniform(low, high, (rows, 1))


def _normal(rng: np.random.Generator, rows: int, n: int) -> Array:
    return rng.standard_normal((rows, n)) * _spread(rng, rows, -2, 1.3)


def _tiny(rng: np.random.Generator, rows: int, n: int) -> Array:
    return rng.standard_normal((rows, n)) * _spread(rng, rows, -12, -2)


def _huge(rng: np.random.Generator, rows: int, n: int) -> Array:
    return rng.standard_normal((rows, n)) * _spread(rng, rows, 1.3, 5)


def _heavy(rng: np.random.Generator, rows: int, n: int) -> Array:
    return rng.standard_cauchy((rows, n)) * _spread(rng, rows, -2, 1)


def _ties(rng: np.random.Generator, rows: int, n: int) -> Array:
    x = _normal(rng, rows, n)
    tied = rng.random((rows, n)) < _spread(rng, rows, -2.5, 0)
    return np.where(tied, x.max(axis=1, keepdims=True), x)


def _one_hot(rng: np.random.Generator, rows: int, n: int) -> Array:
    """The others so low that they underflow, or almost; in float32 from 87, in float64 from 708."""
    near = rng.choice([87.3, 103.9, 708.4, 744.4, 50.0], (rows, 1))
    depth = np.where(rng.random((rows, 1)) < 0.5, near, rng.uniform(15, 780, (rows, 1)))
    x = rng.standard_normal((rows, n)) * _spread(rng, rows, -3, 0.5) - depth
    x[np.arange(rows), rng.integers(0, n, rows)] = 0.0
    return x


def _uniform(rng: np.random.Generator, rows: int, n: int) -> Array:
    return np.repeat(rng.standard_normal((rows, 1)) * _spread(rng, rows, -3, 3), n, axis=1)


def _constant_tail(rng: np.random.Generator, rows: int, n: int) -> Array:
    """Equal weights below the top: the roundings of their sum all have one sign."""
    x = np.repeat(-rng.uniform(0, 40, (rows, 1)) * _spread(rng, rows, -3, 0), n, axis=1)
    x[np.arange(rows), rng.integers(0, n, rows)] = 0.0
    return x


def _levels(rng: np.random.Generator, rows: int, n: int) -> Array:
    """A few values, each many times."""
    values = -rng.uniform(0, 15, (rows, 4)) * _spread(rng, rows, -2, 0.5)
    share = rng.dirichlet([0.3] * 4, rows).cumsum(axis=1)
    which = (rng.random((rows, n, 1)) > share[:, None, :]).sum(axis=2).clip(max=3)
    return np.take_along_axis(values, which, axis=1)


def _ladder(rng: np.random.Generator, rows: int, n: int) -> Array:
    """Weights in geometric progression."""
    x = -np.arange(n) * _spread(rng, rows, -4, 1.5)
    return rng.permuted(x, axis=1) if rng.random() < 0.5 else x


def _half(rng: np.random.Generator, rows: int, n: int) -> Array:
    """A largest probability of almost ½, where the constants are largest."""
    x = rng.standard_normal((rows, n)) * _spread(rng, rows, -6, 0)
    rest = np.log(np.exp(x[:, 1:]).sum(axis=1)) if n > 1 else np.zeros(rows)
    x[:, 0] = rest + rng.standard_normal(rows) * _spread(rng, rows, -12, -1)[:, 0]
    return x


def _pair(rng: np.random.Generator, rows: int, n: int) -> Array:
    """Two logits far above the others, almost equal: the constants approach ½."""
    x = rng.standard_normal((rows, n)) - rng.uniform(0, 60, (rows, 1))
    x[:, :2] = 0.0
    x[:, 0] += rng.standard_normal(rows) * _spread(rng, rows, -17, 0.5)[:, 0]
    return rng.permuted(x, axis=1)


def _integers(rng: np.random.Generator, rows: int, n: int) -> Array:
    return rng.integers(-8, 9, (rows, n)) * 2.0 ** rng.integers(-6, 4, (rows, 1))


KINDS: dict[str, Callable[[np.random.Generator, int, int], Array]] = {
    "normal": _normal, "tiny": _tiny, "huge": _huge, "heavy": _heavy, "ties": _ties,
    "one hot": _one_hot, "uniform": _uniform, "constant tail": _constant_tail, "levels": _levels,
    "ladder": _ladder, "half": _half, "pair": _pair, "integers": _integers,
}  # fmt: skip


def steps_of_one_unit(x: Array, count: Array) -> Array:
    """Move every number by so many units in its last place, at most a few."""
    for turn in range(int(np.max(np.abs(count), initial=0))):
        goal = np.where(count > 0, np.inf, -np.inf).astype(x.dtype)
        with np.errstate(over="ignore"):
            moved = np.nextafter(x, goal)
        x = np.where((np.abs(count) > turn) & np.isfinite(moved), moved, x)
    return x


def near_ties(x: Array, rng: np.random.Generator) -> Array:
    """Put a few logits of every row some units in the last place below the largest."""
    rows, n = x.shape
    places = rng.integers(0, n, (rows, min(n, int(rng.integers(1, 6)))))
    top = x.max(axis=1, keepdims=True).repeat(places.shape[1], axis=1)
    x = x.copy()
    np.put_along_axis(x, places, steps_of_one_unit(top, -rng.integers(0, 5, places.shape)), axis=1)
    return x


def masked(x: Array, rng: np.random.Generator) -> Array:
    """Mask some logits of every row, never all."""
    gone = rng.random(x.shape) < rng.uniform(0, 1, (len(x), 1))
    gone[np.arange(len(x)), rng.integers(0, x.shape[1], len(x))] = False
    return np.where(gone, -np.inf, x).astype(x.dtype)


def block(rng: np.random.Generator, rows: int, n: int, dtype: str) -> tuple[str, Array]:
    """A kind of rows, and a block of them."""
    kind = str(rng.choice(list(KINDS)))
    x = KINDS[kind](rng, rows, n)
    if rng.random() < 0.1:
        x = x + rng.standard_normal((rows, 1)) * _spread(rng, rows, 1, 6)
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    x = np.clip(x, -np.finfo(dtype).max / 4, np.finfo(dtype).max / 4)
    if rng.random() < 0.25:
        kind, x = f"near ties, {kind}", near_ties(x, rng)
    if rng.random() < 0.2:
        kind, x = f"masked, {kind}", masked(x, rng)
    if rng.random() < 0.1:
        x = np.sort(x, axis=1)[:, :: int(rng.choice([-1, 1]))]
    return kind, np.ascontiguousarray(x)


def mutants(row: Array, rng: np.random.Generator, rows: int) -> Array:
    """Rows near one row (of any length): some of its logits moved, copied, exchanged or masked."""
    n = len(row)
    x = np.repeat(row[None], rows, axis=0)
    few = rng.random(x.shape) < _spread(rng, rows, -np.log10(n) - 0.5, 0)
    ways = rng.integers(0, 6, rows)
    finite = np.where(np.isfinite(row), row, 0)
    units = steps_of_one_unit(x, np.where(few, rng.integers(-4, 5, x.shape), 0))
    with np.errstate(over="ignore", invalid="ignore"):
        shift = rng.standard_normal(x.shape) * _spread(rng, rows, -15, 0.5)
        moved = np.where(few, x + shift * (1 + np.abs(finite)), x).astype(x.dtype)
        stretched = (
            x * (1 + rng.standard_normal((rows, 1)) * _spread(rng, rows, -15, -0.3))
        ).astype(x.dtype)
    copied = np.where(few, np.take_along_axis(x, rng.integers(0, n, x.shape), axis=1), x)
    turned = rng.permuted(x, axis=1)
    hidden = np.where(few & (x < x.max(axis=1, keepdims=True)), -np.inf, x).astype(x.dtype)
    choices = (units, moved, stretched, copied, turned, hidden)
    x = np.select([(ways == i)[:, None] for i in range(6)], choices)
    whole = (x < np.finfo(x.dtype).max / 2).all(axis=1) & (x > -np.inf).any(axis=1)
    return np.where(whole[:, None], x, row)
