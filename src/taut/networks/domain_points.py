"""A domain as the interpreter and as a module take it: its region, and points inside it."""

from __future__ import annotations

import math

import torch

from taut._base.domain import At, Ball, Everywhere
from taut.networks.region import Region, everything, start

NetworkDomain = At | Ball | Everywhere


def check_domain(domain: NetworkDomain) -> None:
    """Refuse a domain that does not say enough for a network."""
    if not isinstance(domain, At):
        if domain.shape is None or len(domain.shape) < 2:
            raise ValueError(
                f"a network needs the shape of its inputs, (tokens, width) or (channels, height, "
                f"width): {type(domain).__name__}(..., shape=(16, 64)); got {domain!r}"
            )
        return
    if not isinstance(domain.inputs, torch.Tensor):
        raise TypeError(f"inputs must be a tensor, got {type(domain.inputs).__name__}")
    if domain.inputs.ndim < 2:
        raise ValueError(
            "inputs must be (batch, tokens, width), (batch, width) or images; got shape "
            f"{tuple(domain.inputs.shape)}"
        )


def region_of(domain: NetworkDomain | torch.Tensor, device: torch.device) -> Region:
    """The region of a domain; a tensor is a domain that does not move."""
    if isinstance(domain, (Ball, Everywhere)):
        assert domain.shape is not None
        return everything(domain.shape, domain.radius if isinstance(domain, Ball) else math.inf)
    fixed = isinstance(domain, torch.Tensor)
    given = At(domain) if isinstance(domain, torch.Tensor) else domain
    centre = given.inputs.to(device, torch.float64)
    region = start(centre[:, None] if centre.ndim == 2 else centre, given.radius)
    return region.but(lip=region.lip * 0, radius=region.radius * 0) if fixed else region


def points_of(
    domain: NetworkDomain | torch.Tensor, count: int, source: torch.Generator
) -> torch.Tensor:
    """The given inputs of a domain, or ``count`` random ones of several lengths."""
    if isinstance(domain, torch.Tensor):
        return domain.detach()
    if isinstance(domain, At):
        inputs: torch.Tensor = domain.inputs.detach()
        return inputs
    assert domain.shape is not None
    noise = torch.randn(count, *domain.shape, generator=source, dtype=torch.float64)
    scales = 10.0 ** -torch.arange(count, dtype=torch.float64)
    if isinstance(domain, Ball):
        token = noise.flatten(1).norm(dim=1) if noise.ndim == 4 else noise.norm(dim=-1)
        longest = token.reshape(count, -1).amax(dim=1)
        scales = scales * domain.radius * 0.999 / longest
    return noise * scales.reshape(-1, *[1] * (noise.ndim - 1))
