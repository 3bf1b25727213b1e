"""Queries, keys and values of all heads: projected, normalised, turned."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from taut._base.rounding import EPS, Numbers, down, enlarged, over, plus, reduced, root, times
from taut.networks.operations.attention_parameters import HeadNorm, Rotary
from taut.networks.operations.linear import Affine, applied
from taut.networks.operations.setting import Setting
from taut.networks.region import Region
from taut.networks.weight_norms import host, largest


class Projected(NamedTuple):
    """Queries, keys or values of all heads, one number for each sample."""

    values: torch.Tensor  # (batch, heads, tokens, width)
    gain: Numbers  # constant of what follows the linear map: norm and rotation
    error: Numbers  # how far rounding can have moved one of them


class HeadProjection(NamedTuple):
    """A linear map with the norms of its heads, and what follows it."""

    map: Affine
    heads: int
    spectral: Numbers  # of each head
    frobenius: float  # of the largest head
    bias: float  # longest of a head
    norm: HeadNorm | None = None
    rotary: Rotary | None = None


def projected(run: Setting, x: Region, projection: HeadProjection) -> Projected:
    """Queries, keys or values of the centre.

    Rounding: the linear map errs by γ_{d+1}(‖W‖_F|x| + |b|) for each head. A norm multiplies that
    by its constant, which holds as far as the error reaches, and errs itself by γ_{w+8} of its
    output, as any norm layer; a rotation stretches both and errs by less than γ_4.
    """
    assert x.centre is not None
    z = applied(run, projection.map, x.centre)
    z = z.reshape(*z.shape[:-1], projection.heads, -1).transpose(1, 2)
    gain = np.ones(len(z))
    size = plus(times(projection.frobenius, x.length), projection.bias)
    error = times(EPS * (x.width + 1), size)
    if projection.norm is not None:
        norm, d = projection.norm, z.shape[-1]
        z, gain = _normalised(run, z, norm, times(projection.spectral, x.away[:, None]), error)
        size = np.full(len(z), times(largest(norm.gain), root(d)))
        error = plus(times(gain, error), times(EPS * (d + 8), size))
    if projection.rotary is not None:
        z = turned(z, *(run.tensor(part) for part in projection.rotary))
        turn = stretch(projection.rotary)
        gain = times(gain, turn)
        error = times(turn, plus(error, times(4 * EPS, size)))
    return Projected(z, gain, error)


def _normalised(
    run: Setting, z: torch.Tensor, norm: HeadNorm, away: Numbers, error: Numbers
) -> tuple[torch.Tensor, Numbers]:
    """RMSNorm of every head, and its constant for all that are as far ``away``, (batch, heads)."""
    d = z.shape[-1]
    power = z.square().mean(dim=-1, keepdim=True)
    if not bool(torch.isfinite(power).all()):
        raise ValueError("the mean square of a query or key overflows in float64 at these inputs")
    least = reduced(host(power.sqrt().amin(dim=(2, 3))), d + 8)
    falls = over(plus(away, error[:, None]), down(math.sqrt(d)))
    spread = down(least - falls)
    floor = reduced(np.sqrt(spread**2 + norm.epsilon).min(axis=1), 4)
    z = z / (power + norm.epsilon).sqrt()
    z = z if norm.gain is None else z * run.tensor(norm.gain)
    return z, over(largest(norm.gain), floor)


def turned(z: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotary positions, on the first coordinates, as many as there are cosines."""
    cosine, sine = cosine[..., : z.shape[-2], :], sine[..., : z.shape[-2], :]
    part, rest = z[..., : cosine.shape[-1]], z[..., cosine.shape[-1] :]
    left, right = part.chunk(2, dim=-1)
    return torch.cat((part * cosine + torch.cat((-right, left), dim=-1) * sine, rest), dim=-1)


def stretch(rotary: Rotary) -> float:
    """Norm of the rotations: 1 but for rounding and for the factors of scaled positions."""
    cosine, sine = (part.detach().double() for part in rotary)
    for part in (cosine, sine):
        left, right = part.chunk(2, dim=-1)
        if not torch.equal(left, right):
            raise ValueError("rotary positions must turn pairs of coordinates by one angle")
    return max(1.0, enlarged(float((cosine**2 + sine**2).sqrt().max()), 4))


def limited(norm: HeadNorm | None, size: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """Constant and size of queries or keys after their norm, if they have one."""
    if norm is None:
        return np.ones(len(size)), size
    top = largest(norm.gain)
    constant = np.broadcast_to(over(top, down(math.sqrt(norm.epsilon))), (len(size),))
    most = times(top, root(width))
    return constant, np.minimum(times(constant[:, None], size), most)
