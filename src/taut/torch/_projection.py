"""Queries, keys and values of all heads: projected, normalised, turned; masks and biases."""

from __future__ import annotations

import math

import numpy as np
import torch

from taut.torch._frame import Frame
from taut.torch._heads import HeadNorm
from taut.torch._mlp import Affine
from taut.torch._numbers import Numbers, over, times
from taut.torch._region import Region
from taut.torch._spectral import largest

Rotary = tuple[torch.Tensor, torch.Tensor]  # cosines and sines, (tokens, turned width)


def projected(
    run: Frame,
    x: Region,
    map_: Affine,
    count: int,
    norm: HeadNorm | None,
    rotary: Rotary | None,
    weights: Numbers,
) -> tuple[torch.Tensor, Numbers]:
    """(batch, heads, tokens, width), and the constant of what follows the linear map.

    ``weights`` are the norms of the linear map of each head.
    """
    assert x.centre is not None
    z = x.centre @ run.tensor(map_[0]).mT
    z = z if map_[1] is None else z + run.tensor(map_[1])
    z = z.reshape(*z.shape[:-1], count, -1).transpose(1, 2)
    constant = np.ones(len(z))
    if norm is not None:
        d = z.shape[-1]
        power = z.square().mean(dim=-1, keepdim=True)
        least = power.detach().sqrt().amin(dim=(2, 3)).cpu().numpy() * (1 - 1e-13)
        falls = times(weights, x.radius[:, None], 1 / math.sqrt(d) * (1 + 1e-15))
        spread = np.maximum(least - falls, 0.0)
        floor = np.sqrt(spread**2 + norm.epsilon).min(axis=1) * (1 - 1e-15)
        constant = over(largest(norm.gain), floor)
        z = z / (power + norm.epsilon).sqrt()
        z = z if norm.gain is None else z * run.tensor(norm.gain)
    if rotary is not None:
        z = turned(z, *(run.tensor(part) for part in rotary))
        constant = times(constant, stretch(rotary))
    return z, constant


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
    return max(1.0, float((cosine**2 + sine**2).sqrt().max()) * (1 + 1e-15))


def limited(norm: HeadNorm | None, size: Numbers, width: int) -> tuple[Numbers, Numbers]:
    """Constant and size of queries or keys after their norm, if they have one."""
    if norm is None:
        return np.ones(len(size)), size
    top = largest(norm.gain)
    constant = np.broadcast_to(over(top, math.sqrt(norm.epsilon) * (1 - 1e-15)), (len(size),))
    most = top * math.sqrt(width) * (1 + 1e-15)
    return constant, np.minimum(times(constant[:, None], size), most)


def additive(
    run: Frame, mask: torch.Tensor | None, bias: torch.Tensor | None, shape: tuple[int, ...]
) -> torch.Tensor | None:
    """Mask and bias as one term of the scores, −inf where a query does not see a key."""
    fixed = None if bias is None else run.tensor(bias).expand(shape)
    if mask is None:
        return fixed
    seen = mask.to(run.device)
    try:
        seen = (seen[:, None] if seen.ndim == 3 else seen).expand(shape)
    except RuntimeError:
        raise ValueError(
            f"a mask of shape {tuple(mask.shape)} does not fit {shape[2]} queries and {shape[3]} "
            f"keys of {shape[0]} samples"
        ) from None
    if not bool(seen.any(dim=-1).all()):
        raise ValueError("a mask leaves some query without any key: its output is undefined")
    plain = torch.zeros((), dtype=torch.float64, device=run.device)
    return torch.where(seen, plain if fixed is None else fixed, -math.inf)
