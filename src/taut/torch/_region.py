"""Region: where the tokens can be at some point inside a network."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from taut.torch._numbers import Numbers, number, plus, times

# Constants that depend on the centre are enlarged by this factor, because it is computed in
# float64: an estimate, generous next to the relative errors of 1e-12 that were seen.
CENTRE = 1 + 1e-9


@dataclass(frozen=True)
class Region:
    """A set of tokens, and how far it moves when the input does. Numbers are one for each sample.

    Attributes
    ----------
    centre
        Where the given inputs lead, in float64, (batch, tokens, width) or images; None if the
        certificate is for all inputs of bounded length.
    tokens, width
        How many tokens there are, and of what width.
    radius
        No token is farther than this from its centre.
    length
        No token is longer than this.
    lip
        Lipschitz constant of the way here, from the input of the module that is looked at.
    err
        How far rounding may have moved the network as executed, to first order, in the norm of the
        certificate.
    image
        (channels, height, width), if it is still an image.
    """

    centre: torch.Tensor | None
    tokens: int
    width: int
    radius: Numbers
    length: Numbers
    lip: Numbers
    err: Numbers
    image: tuple[int, ...] = ()

    def but(self, **changes: Any) -> Region:
        """The same with some fields changed."""
        return replace(self, **changes)

    def moved(
        self, centre: torch.Tensor | None, constant: Any, length: Any, rounding: Any, width: int
    ) -> Region:
        """What a map with this Lipschitz constant makes of it.

        ``length`` bounds the tokens of its output whatever the centre is, ``rounding`` what the map
        itself adds to ``err``.
        """
        return self.but(
            width=width,
            lip=times(self.lip, constant),
            err=plus(times(self.err, constant), rounding),
        ).placed(centre, times(self.radius, constant), length)

    def placed(self, centre: torch.Tensor | None, radius: Any, length: Any) -> Region:
        """The same around another centre, with what is known of its tokens.

        No token is farther from its centre than both are long; all tokens together, which the
        radius means in l2, no farther than √tokens times that.
        """
        longest = number(length)
        if centre is not None:
            longest = np.minimum(longest, reach(centre, radius))
            most = times(2.0, length, math.sqrt(self.tokens) * (1 + 1e-15))
            radius = np.minimum(radius, most)
        return self.but(centre=centre, radius=number(radius), length=longest)


def lengths(centre: torch.Tensor) -> torch.Tensor:
    """l2 norm of every token, (batch, tokens)."""
    tokens = centre if centre.ndim == 3 else centre.flatten(1)[:, None]  # an image is one token
    found: torch.Tensor = tokens.norm(dim=2)
    return found


def reach(centre: torch.Tensor, radius: Numbers) -> Numbers:
    """Longest token within the radius of the centre."""
    longest = lengths(centre).amax(dim=1).detach().cpu().numpy() * (1 + 1e-13)
    return plus(longest, radius)


def everything(shape: tuple[int, ...], longest: float) -> Region:
    """The region of all inputs of a shape with tokens of bounded length."""
    image = len(shape) == 3
    infinite = np.full(1, np.inf)
    return Region(
        None,
        tokens=1 if image else shape[0],
        width=math.prod(shape) if image else shape[1],
        radius=infinite,
        length=np.full(1, longest),
        lip=np.ones(1),
        err=np.zeros(1),
        image=shape if image else (),
    )


def start(centre: torch.Tensor, radius: Any) -> Region:
    """The region of given inputs."""
    batch = len(centre)
    near = np.broadcast_to(number(radius), (batch,)).copy()
    image = centre.ndim > 3
    return Region(
        centre,
        tokens=1 if image else centre.shape[1],
        width=centre[0].numel() if image else centre.shape[2],
        radius=near,
        length=reach(centre, near),
        lip=np.ones(batch),
        err=np.zeros(batch),
        image=tuple(centre.shape[1:]) if image else (),
    )
