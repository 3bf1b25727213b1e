"""What softmax does beyond its derivative (theorem softmax-remainder)."""

from __future__ import annotations

from typing import NamedTuple

import torch

LARGEST = 600.0  # exponents beyond it are not computed; the limits 0 and 1 of weights count

SMALLEST = 1e-290  # weights below it may be 0 as computed, and rise by any factor


class Remainder(NamedTuple):
    """Limits of p′ⱼ − pⱼ − pⱼcⱼ, where the centred scores cⱼ are at most aⱼ.

    Attributes
    ----------
    low, high
        The remainder lies between −low and high.
    change
        Largest |p′ⱼ − pⱼ|.
    gap
        Largest value of log Σ p e^c, (..., 1).
    """

    low: torch.Tensor
    high: torch.Tensor
    change: torch.Tensor
    gap: torch.Tensor


def beyond_linear(a: torch.Tensor) -> torch.Tensor:
    """At least e^a − 1 − a for a ≥ 0, without cancellation.

    Below 0.01 it is a²/2·(1 + a/3 + a²/12 + …), and the bracket is less than 1/(1 − a/3).
    """
    small = a.clamp(max=0.01)
    series = small.square() / 2 / (1 - small / 3)
    large = torch.expm1(a) - a
    return torch.where(a < 0.01, series, large) * (1 + 1e-12)


def softmax_remainder(
    p: torch.Tensor, a: torch.Tensor, gap: torch.Tensor | None = None, doubt: float = 0.0
) -> Remainder:
    """Limits for weights p and centred scores of at most a ≥ 0, along the last axis.

    With p′ⱼ = pⱼe^(cⱼ − g) and Σpc = 0, g lies between 0 (Jensen) and log(1 + Σp(e^a − 1 − a)).
    e^(c − g) − 1 − c is at most e^a − 1 − a; it is least at c = g, where it is −g, or at the end
    c = a if g lies beyond. p′ itself lies between pe^(−a − g) and min(1, pe^a).

    Parameters
    ----------
    gap
        Another upper bound on g, (..., 1), if one is known.
    doubt
        How far weights can be off, relative to themselves, because they were rounded.

    Weights that underflowed count as 1e-290: keys that are not seen must have a = 0 and be left
    out of what is made of the result.

    Notes
    -----
    Rounding: every result is a sum or product of a few positive numbers, enlarged by 1e-9 of
    itself and by the doubt.
    """
    p = p.clamp(min=SMALLEST)
    fits = a <= LARGEST
    beyond = beyond_linear(a.clamp(max=LARGEST))
    most = a.amax(dim=-1, keepdim=True)
    g = torch.log1p((p * beyond).sum(dim=-1, keepdim=True)) * (1 + 1e-9 + 4 * doubt)
    g = torch.where(most <= LARGEST, torch.minimum(g, most), most)
    g = g if gap is None else torch.minimum(g, gap)
    rises = torch.minimum(
        torch.where(fits, p * torch.expm1(a.clamp(max=LARGEST)), 1.0),
        (1 - p).clamp(min=0.0) + doubt + 1e-15,
    )
    sinks = -p * torch.expm1(-a - g)
    falls = torch.where(g <= a, g, a - torch.expm1(a - g))
    high = torch.minimum(torch.where(fits, p * beyond, torch.inf), rises + p * a)
    low = torch.minimum(p * falls, sinks + p * a)
    more = (1 + 1e-9) * (1 + 4 * doubt)
    return Remainder(low * more, high * more, torch.maximum(rises, sinks) * more, g)
