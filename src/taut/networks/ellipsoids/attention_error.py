"""Attention beyond its derivative (theorem ellipsoid-attention)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

import torch

from taut.networks.ellipsoids.attention_ellipsoid import MovedAttention, swapped
from taut.networks.ellipsoids.ellipsoid import box, reach, series, summed, widened
from taut.networks.propagation.node import UnboundedError

ORDERS = 24  # of the exponential series, at most
JOINT = 4  # orders up to this are forms of scores and values together
FARTHEST = 6.0  # centred scores that move more are not followed

Weighed = tuple[MovedAttention, torch.Tensor]


def attention_error(
    linear: MovedAttention, beyond: MovedAttention, doubt: torch.Tensor
) -> tuple[torch.Tensor, float]:
    """The ellipsoid of all outputs minus their linear change, (queries·heads·width)².

    Also how far a centred score can move. With linear changes u, w and all other moves b, the
    centred scores move by u + η, η = u_b + σ, where σ is the product of moved queries and keys. The
    terms of second order of the linear change, those of k-th order without η, those of b and the
    linear change, and those of σ and the linear change are forms of their own.

    Parameters
    ----------
    linear, beyond
        Linear changes, and all other moves.
    doubt
        Further errors of the centred scores of each query, (queries,).
    """
    a, b = linear, beyond
    half = a.halved(b)
    unsure = box(torch.where(a.seen, doubt[None, :, None], 0.0).flatten())
    first, later = a.products(a) / 4, summed(b.products(half), unsure)
    sigma = summed(first, later)
    eta = summed(b.scores, sigma)
    near, far = reach(a.scores), reach(eta)
    if not bool((near + far < FARTHEST).all()):
        raise UnboundedError
    e1, e2, e_values, e_scores = (_exp(a.scores, near, k) for k in (1, 2, JOINT, JOINT + 1))
    h2, h3 = _exp(eta, far, 2), _exp(eta, far, 3)
    h1 = summed(eta, h2)
    both = e1 * h2
    on_scores = summed(e2 * eta, b.scores * sigma, sigma * sigma / 4, h3, both)
    parts = [
        *(order_of(a, k) for k in range(2, JOINT + 1)),
        polar_of(b, half),
        _joint(a, sigma),
        a.spread(sigma),
        a.spread(summed(e_scores, on_scores)),
        a.beside(summed(e_values, e1 * eta, h2, both)),
        b.beside(summed(e2, sigma, h2, e1 * h1)),
    ]
    error = summed(*parts)
    share = a.share(summed(e2, h2, e1 * h1))
    shape = (a.heads, a.many, a.width) * 2
    apart = error.reshape(shape)
    scaled = apart * share.reshape(a.heads, a.many, 1, a.heads, a.many, 1)
    both_parts = (x.permute(1, 0, 2, 4, 3, 5).reshape(error.shape) for x in (apart, scaled))
    return summed(*both_parts), float((near + far).max())


def _exp(matrix: torch.Tensor, far: torch.Tensor, start: int) -> torch.Tensor:
    """The ellipsoid of Σ cᵏ/k! from k = start on."""
    orders = range(start, ORDERS + 1)
    one = torch.ones_like(far)
    powers = [one * (1 / math.factorial(k)) for k in orders]
    rests = [far ** (k + 1) * (1 / math.factorial(k + 1)) * torch.exp(far) for k in orders[1:]]
    return summed(*series(matrix, powers, rests, start))


def order_of(a: MovedAttention, k: int) -> torch.Tensor:
    """Forms Σ p(v − o)uᵏ/k! + Σ p·w·uᵏ⁻¹/(k − 1)!, made symmetric."""
    whole, less = math.factorial(k), math.factorial(k - 1)
    u = a.plain_scores
    return _form(
        a,
        widened(a.scores**k / whole**2, 8 * k),
        besides=[(a, widened(a.scores ** (k - 1) / (less**2 * k), 8 * k))],
        crosses=[(a, u ** (k - 1) / (whole * less))],
        swaps=[(a, a, u ** (k - 2) * ((k - 1) / (k * less**2)))],
    )


def polar_of(b: MovedAttention, c: MovedAttention) -> torch.Tensor:
    """Forms Σ p(v − o)u_b·u_c + Σ p(u_b·w_c + u_c·w_b)."""
    one = torch.ones_like(b.scores)
    return _form(
        b,
        widened(b.scores * c.scores, 8),
        besides=[(c, b.scores), (b, c.scores)],
        crosses=[(c, b.plain_scores), (b, c.plain_scores)],
        swaps=[(b, c, one)],
    )


def _joint(a: MovedAttention, matrix: torch.Tensor) -> torch.Tensor:
    """Forms Σ p((v − o)u + w)y for y in an ellipsoid of all scores."""
    return _form(a, widened(a.scores * matrix, 8), [(a, matrix)], [(a, matrix)], [])


def _form(
    a: MovedAttention,
    spread: torch.Tensor,
    besides: Sequence[Weighed],
    crosses: Sequence[Weighed],
    swaps: Sequence[tuple[MovedAttention, MovedAttention, torch.Tensor]],
) -> torch.Tensor:
    """Inner products of forms of scores and values of all outputs.

    ``spread`` are those of the scores that are multiplied with p(v − o), ``besides`` those that are
    multiplied with p·w, of the moves given. ``crosses`` belong to one of each, and ``swaps`` to two
    of the second kind whose scores are paired with each other's values; if their moves differ, both
    orders count.
    """
    shape = (a.heads, a.many, a.keys) * 2
    found = spread.new_zeros((a.heads, a.many, a.width) * 2)
    for moved, matrix in crosses:
        for h, g in product(range(a.heads), repeat=2):
            weighed = matrix.reshape(shape)[h, :, :, g] * a.p[g]
            one = moved.summed_values(h, g, weighed)
            cross = torch.einsum("ijd,ijye->idye", a.spread_of[h], one)
            found[h, :, :, g] += cross
            found[g, :, :, h] += cross.permute(2, 3, 0, 1)
    for left, right, matrix in swaps:
        for h, g in product(range(a.heads), repeat=2):
            if left is right and g < h:
                continue
            weights = a.p[h][:, :, None, None] * a.p[g] * matrix.reshape(shape)[h, :, :, g]
            one = swapped(left, right, h, g, weights)
            found[h, :, :, g] += one
            if left is not right or g > h:  # the same for g and h, and right and left
                found[g, :, :, h] += one.permute(2, 3, 0, 1)
    size = torch.einsum("hijd,hij->hid", a.spread_of.abs(), a.roots(spread))
    whole = a.spread(spread)
    for moved, matrix in besides:
        whole = whole + moved.beside(matrix)
        size = size + torch.einsum("hij,hijd->hid", a.p * a.roots(matrix), moved.wide())
    flat = found.reshape(whole.shape)
    terms = a.terms + sum(moved.size for moved, _ in besides)
    return widened(whole + a.flat((flat + flat.T) / 2, 4 * size.square(), terms), 8)
