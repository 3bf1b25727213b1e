"""One head at given tokens: its weights P, and the pieces that its derivative is made of.

With Dⱼ = vⱼ − v̄ᵢ, cᵢⱼ the slope of the soft cap, kⱼ the (rotated) key and gᵢⱼ the gradient of the
uncapped score in the token yⱼ, the output of query i changes by

    Tᵢ dxᵢ + Σⱼ Pᵢⱼ (Wv + cᵢⱼ Dⱼ gᵢⱼᵀ) dyⱼ,    Tᵢ = scale · Σⱼ Pᵢⱼ cᵢⱼ Dⱼ kⱼᵀ Wq.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from taut._base.array import Array, quietly
from taut._base.matrix_norm import Matrix, spectral
from taut._base.rounding import EPS
from taut.attention.checks import additive, numbers, visible
from taut.attention.layer import Head, Layer


class Tokens(NamedTuple):
    """Where the layer is looked at: tokens, what each query sees, fixed terms, rotations."""

    x: Matrix
    y: Matrix
    seen: np.ndarray[Any, np.dtype[Any]]
    bias: Matrix | None
    turn: Matrix | None  # (tokens, width, width), of queries and keys alike
    itself: bool  # whether queries and keys are made of the same tokens (self-attention)


class Row(NamedTuple):
    """What one query of one head needs: see the top of the module."""

    p: Matrix  # weights (m,)
    c: Matrix  # slopes (m,)
    spread: Matrix  # D, (m, values)
    gradient: Matrix  # g, (m, inputs) or (1, inputs)
    query: Matrix  # T, (values, inputs)


class Evaluated(NamedTuple):
    """A head at the tokens, with the relative error that rounding may have made."""

    rows: list[Row]
    values: Matrix  # Wv, or its folded form
    slack: float
    size: float  # of what errs by it, so that slack·size bounds the error of the derivative


def tokens(
    layer: Layer, x: Array, context: Array, mask: Array, causal: bool, bias: Array, rotations: Array
) -> Tokens:
    """Check everything that is not a weight."""
    if not isinstance(layer, Layer):
        raise TypeError(f"layer must be a taut.attention.Layer, got {type(layer).__name__}")
    x = numbers(x, name="x")
    y = x if context is None else numbers(context, name="context")
    for found, wanted, name in ((x, layer.inputs, "x"), (y, layer.context_inputs, "context")):
        if found.shape[1] != wanted:
            raise ValueError(
                f"{name} must have tokens of width {wanted}, its shape is {found.shape}"
            )
    shape = (len(x), len(y))
    turn = turns(layer, rotations, max(shape))
    seen = visible(mask, causal, shape)
    fixed = additive(bias, (len(layer.heads), *shape))
    return Tokens(x, y, seen, fixed, turn, itself=context is None)


def turns(layer: Layer, rotations: Array, positions: int) -> Matrix | None:
    """Check rotary positions: one matrix for each."""
    if rotations is None:
        return None
    width = layer.heads[0].wq.shape[0]
    found = numbers(rotations, name="rotations", ndim=3)
    if found.shape != (positions, width, width):
        raise ValueError(
            f"rotations must be one matrix for each position, {(positions, width, width)}, "
            f"got {found.shape}"
        )
    return found


@quietly
def evaluate(layer: Layer, at: Tokens, index: int, *, fold: bool) -> Evaluated:
    """The rows of head ``index``; ``fold`` gives its values as the output projection sees them."""
    head = layer.heads[index]
    wv = head.folded if fold else head.wv
    q, k = at.x @ head.wq.T + head.bq, at.y @ head.wk.T + head.bk
    if at.turn is not None:
        q = np.einsum("iab,ib->ia", at.turn[: len(q)], q)
        k = np.einsum("jab,jb->ja", at.turn[: len(k)], k)
    if layer.softcap is None:
        k = k - k.mean(axis=0)  # theorem shift: no weight changes, and digits are spared
    raw = layer.scale * (q @ k.T)
    slope, z = np.ones_like(raw), raw
    if layer.softcap is not None:
        z = layer.softcap * np.tanh(raw / layer.softcap)
        slope = 1 / np.cosh(np.minimum(np.abs(raw / layer.softcap), 300.0)) ** 2
    if at.bias is not None:
        z = z + at.bias[index]
    z = np.where(at.seen, z, -math.inf)
    weights = np.exp(z - z.max(axis=1, keepdims=True))
    weights = weights / weights.sum(axis=1, keepdims=True)
    v = at.y @ wv.T
    v = v - v.mean(axis=0)
    rows = [
        _row(layer.scale, head, at, i, (q[i], k, v), weights[i], slope[i]) for i in range(len(q))
    ]
    return Evaluated(rows, wv, *_error(layer, at, head, rows, k))


def _row(
    scale: float,
    head: Head,
    at: Tokens,
    i: int,
    qkv: tuple[Matrix, Matrix, Matrix],
    p: Matrix,
    c: Matrix,
) -> Row:
    q, k, v = qkv
    spread = v - p @ v
    wq = head.wq if at.turn is None else at.turn[i] @ head.wq
    query = scale * ((spread * (p * c)[:, None]).T @ k) @ wq
    if at.turn is None:
        gradient = scale * (q @ head.wk)[None, :]
    else:
        gradient = scale * np.einsum("jab,a->jb", at.turn[: len(k)], q) @ head.wk
    return Row(p, c, spread, gradient, query)


def _error(layer: Layer, at: Tokens, head: Head, rows: list[Row], k: Matrix) -> tuple[float, float]:
    """Relative error of the weights and slopes, and the size of the sums that it goes into.

    A score errs by a few eps times the number of terms times the sizes that were multiplied, a
    weight by the factor e to twice that, and the slope of the cap by 2/softcap times it. All terms
    of a sum then err by that factor of their own size; what errs by eps alone is counted by share.
    """

    def longest(tokens: Matrix, weight: Matrix, bias: Matrix) -> float:
        reach = float(np.linalg.norm(tokens, axis=1).max() * np.linalg.norm(weight))
        return reach + float(np.linalg.norm(bias))

    turned = 1.0 if at.turn is None else max(float(np.linalg.norm(t)) for t in at.turn)
    q, key = longest(at.x, head.wq, head.bq), longest(at.y, head.wk, head.bk)
    fixed = 0.0 if at.bias is None else float(np.abs(at.bias).max())
    capped = 0.0 if layer.softcap is None else 2 / layer.softcap
    terms = sum(head.wq.shape) + sum(head.wk.shape) + sum(head.wv.shape) + sum(at.seen.shape) + 32
    growth = 1 + 2 * layer.scale * q * key * turned**2 * (1 + capped) + fixed
    slack = 8 * EPS * terms * growth
    outer = 1.0 if layer.wo is None else float(np.linalg.norm(layer.wo))
    value = outer * float(np.linalg.norm(head.wv))
    spread = value * float(np.linalg.norm(at.y, axis=1).max()) / growth
    lever = layer.scale * turned**2 * (key * spectral(head.wq) + q * spectral(head.wk)) / growth
    keys = layer.scale * turned * spectral(head.wq) * np.linalg.norm(k, axis=1)
    sizes = []
    for row in rows:
        apart = np.linalg.norm(row.spread, axis=1)
        pulled = keys + np.linalg.norm(row.gradient, axis=1) + lever
        moved = (row.c * (apart + row.p @ apart + spread) * pulled) ** 2
        sizes.append(value + math.sqrt(float(row.p @ moved)))
    return math.expm1(min(slack, 700.0)), math.sqrt(len(rows)) * max(sizes)
