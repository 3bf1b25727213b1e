"""Region: where the tokens can be at some point inside a network."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from taut._base.matrix_norm import lengths
from taut._base.rounding import Numbers, number, plus, root, times
from taut.networks.rounding_error import RoundingError
from taut.networks.weight_norms import host


@dataclass(frozen=True)
class Region:
    """A set of tokens, and how far it moves when the input does. Numbers are one for each sample.

    Attributes
    ----------
    centre
        Where the given inputs lead, computed in float64, (batch, tokens, width) or images; None if
        the certificate is for all inputs of bounded length.
    tokens, width
        How many tokens there are, and of what width.
    radius
        How far tokens can be from where the given inputs lead, in the norm of the certificate.
    drift
        How far the centre can be from where the given inputs lead, because it was rounded.
    length
        No token is longer than this, nor is any of the centre.
    lip
        Lipschitz constant from the input of the module in hand to here.
    err
        How far rounding may have moved the network as executed, to first order, in the norm of the
        certificate.
    image
        (channels, height, width), if it is still an image.
    last
        The linear map that made it, if nothing came after: a classifier's last layer.
    """

    centre: torch.Tensor | None
    tokens: int
    width: int
    radius: Numbers
    length: Numbers
    lip: Numbers
    err: Numbers
    drift: Numbers
    image: tuple[int, ...] = ()
    last: LastLinear | None = None

    @property
    def away(self) -> Numbers:
        """How far tokens can be from the centre as it was computed."""
        return plus(self.radius, self.drift)

    def but(self, **changes: Any) -> Region:
        """The same with some fields changed: a linear map is not the last one any more."""
        return replace(self, **{"last": None, **changes})

    def in_units(self, unit: Numbers) -> Region:
        """The same, for an input that moves by ``unit`` where it moved by 1."""
        last = None
        if self.last is not None:
            last = self.last._replace(features=self.last.features.in_units(unit))
        return self.but(lip=times(unit, self.lip), last=last)

    def moved(
        self,
        centre: torch.Tensor | None,
        constant: Any,
        length: Any,
        rounding: RoundingError,
        width: int,
    ) -> Region:
        """What a map with this Lipschitz constant makes of it.

        ``length`` bounds the tokens of its output whatever the centre is; ``rounding`` is what the
        map itself adds to the errors.

        Notes
        -----
        Let f be the map, c the centre as computed and x where the given inputs lead. The new centre
        f̂(c) is as far from f(x) as |f(c) − f(x)| + |f̂(c) − f(c)| ≤ constant·drift + rounding:
        the constant holds on all of the region, which the line from x to c does not leave, and the
        rounding of the map is that of exact inputs. Nothing here is to first order.
        """
        return self.but(
            width=width,
            lip=times(self.lip, constant),
            err=plus(times(self.err, constant), rounding.executed),
            drift=rounding.after(times(self.drift, constant), length),
        ).placed(centre, times(self.radius, constant), length)

    def placed(self, centre: torch.Tensor | None, radius: Any, length: Any) -> Region:
        """The same around another centre, with what is known of its tokens.

        No token is farther from where the given inputs lead than both are long; all tokens
        together, which the radius means in l2, no farther than √tokens times that.
        """
        if centre is None:
            none = np.zeros_like(self.drift)
            return self.but(centre=None, radius=number(radius), length=number(length), drift=none)
        most, found = root(self.tokens), longest(centre)
        radius = np.minimum(radius, times(2.0, length, most))
        drift = np.minimum(self.drift, times(plus(length, found), most))
        far = np.minimum(length, plus(found, radius, drift))
        return self.but(
            centre=centre,
            radius=number(radius),
            drift=number(drift),
            length=np.maximum(far, found),
        )


class LastLinear(NamedTuple):
    """A linear map, weight as (outputs, inputs), and the region that it was applied to."""

    features: Region
    weight: torch.Tensor


def longest(centre: torch.Tensor) -> Numbers:
    """Length of the longest token of each sample, from above."""
    tokens = centre if centre.ndim == 3 else centre.flatten(1)[:, None]  # an image is one token
    found: Numbers = lengths(host(tokens)).max(axis=1)
    return found


def everything(shape: tuple[int, ...], length: float) -> Region:
    """The region of all inputs of a shape with tokens of bounded length."""
    image = len(shape) == 3
    infinite = np.full(1, np.inf)
    return Region(
        None,
        tokens=1 if image else shape[0],
        width=math.prod(shape) if image else shape[1],
        radius=infinite,
        length=np.full(1, length),
        lip=np.ones(1),
        err=np.zeros(1),
        drift=np.zeros(1),
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
        length=plus(longest(centre), near),
        lip=np.ones(batch),
        err=np.zeros(batch),
        drift=np.zeros(batch),
        image=tuple(centre.shape[1:]) if image else (),
    )
