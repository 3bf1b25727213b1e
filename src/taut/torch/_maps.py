"""The maps that act on every token by itself, and sums of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from taut.torch._activations import Activation, activation_of
from taut.torch._frame import Frame, Head
from taut.torch._numbers import Numbers, hypotenuse, number, over, plus, times
from taut.torch._region import CENTRE, Region
from taut.torch._spectral import frobenius, largest, length, spectral

_ROUND = 8 * 2.0**-52  # of float64 sums of squares and roots, next to which it is generous


class TokenMaps(Frame):
    """Linear maps, activations, norm layers, residuals, positions and pooling."""

    def linear(
        self,
        x: Region,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        name: str | None = None,
    ) -> Region:
        """Wx + b, the weight laid out as (outputs, inputs)."""
        self.fits(x, weight.shape[1], "a linear layer")
        constant = spectral(weight)
        fixed = length(bias)
        self.note(name, "Linear", "spectral norm", ("spectral",), constant)
        centre = None
        if x.centre is not None:
            centre = x.centre @ self.tensor(weight).mT
            centre = centre if bias is None else centre + self.tensor(bias)
        largest_sum = plus(times(frobenius(weight), x.length), fixed)
        y = x.moved(
            centre,
            constant,
            plus(times(constant, x.length), fixed),
            self.rounding(x, largest_sum, weight.shape[1] + 1),
            weight.shape[0],
        )
        self.head = Head(x, weight, y)
        return y

    def known(self, function: Any) -> Activation:
        """An activation with its slopes, or an error that says how to give one."""
        found = activation_of(function)
        if found is None:
            name = getattr(function, "__name__", type(function).__name__)
            raise TypeError(
                f"the slopes of the activation {name} are not known; pass "
                "taut.torch.Activation(function, low, high) with its smallest and largest slope"
            )
        return found

    def activation(self, x: Region, function: Any, name: str | None = None) -> Region:
        """A function applied to every number: a module or function of torch, or Activation."""
        self.tokens_only(x)
        act = function if isinstance(function, Activation) else self.known(function)
        rule = f"slopes {act.low:.4g} to {act.high:.4g}"
        self.note(name, "activation", rule, ("activation-slope",), act.constant)
        size = plus(times(act.constant, x.length), act.at_zero * math.sqrt(x.width))
        centre = None if x.centre is None else act.function(x.centre)
        lost = plus(self.rounding(x, size, 8), times(act.jump, math.sqrt(x.width * x.tokens)))
        return x.moved(centre, act.constant, size, lost, x.width)

    def normalise(
        self,
        x: Region,
        gain: torch.Tensor | None,
        shift: torch.Tensor | None,
        epsilon: float,
        *,
        centred: bool,
        name: str | None = None,
    ) -> Region:
        """LayerNorm (``centred``) or RMSNorm of every token (theorem norm-layer)."""
        self.fits(x, x.width if gain is None else gain.shape[0], "a norm layer")
        top, fixed, d = largest(gain), length(shift), x.width
        centre, spread = None, number(0.0)
        if x.centre is not None:
            middle = x.centre - x.centre.mean(dim=-1, keepdim=True) if centred else x.centre
            power = middle.square().mean(dim=-1, keepdim=True)
            least = power.detach().sqrt().flatten(1).amin(dim=1).cpu().numpy() * (1 - d * _ROUND)
            least = least - d * _ROUND * x.length  # what subtracting a large mean has cost
            spread = np.maximum(least - over(x.radius, math.sqrt(d) * (1 - _ROUND)), 0.0)
            centre = middle / (power + epsilon).sqrt()
            centre = centre if gain is None else centre * self.tensor(gain)
            centre = centre if shift is None else centre + self.tensor(shift)
        floor = np.sqrt(spread**2 + epsilon) * (1 - _ROUND)
        constant = over(top, floor)
        if x.centre is not None:
            constant = np.minimum(times(CENTRE, constant), over(top, _floor(epsilon)))
        where = "1/√ε" if x.centre is None else "1/√(var + ε)"
        self.note(name, "norm", f"max|gain|·{where}", ("norm-layer",), constant)
        # No coordinate can be more than √d: x/√(mean x² + ε). And no more than the input allows.
        size = plus(
            times(top, np.minimum(_root(d), over(x.length, _floor(epsilon)))),
            fixed,
        )
        # Subtracting the mean and dividing magnify what is lost of the input itself.
        lost = plus(times(constant, x.length), times(2.0, size))
        return x.moved(centre, constant, size, self.rounding(x, lost, d + 8), d)

    def scale(self, x: Region, factors: torch.Tensor | float, name: str | None = None) -> Region:
        """Each coordinate times its factor."""
        values = (
            torch.as_tensor(factors, dtype=torch.float64)
            if isinstance(factors, float)
            else self.tensor(factors)
        )
        self.tokens_only(x)
        constant = largest(values)
        self.note(name, "scale", "largest factor", ("spectral",), constant)
        centre = None if x.centre is None else x.centre * values
        size = times(constant, x.length)
        return x.moved(centre, constant, size, self.rounding(x, size, 1), x.width)

    def add(self, x: Region, y: Region) -> Region:
        """The sum of two regions, as in a residual connection."""
        centre = None if x.centre is None or y.centre is None else x.centre + y.centre
        size = plus(x.length, y.length)
        return x.but(
            lip=plus(x.lip, y.lip),
            err=plus(x.err, y.err, self.rounding(x, size, 1)),
        ).placed(centre, plus(x.radius, y.radius), size)

    def shift(self, x: Region, constant: torch.Tensor) -> Region:
        """Add something fixed, such as embeddings of positions, (..., tokens, width)."""
        fixed = self.tensor(constant)
        self.fits(x, fixed.shape[-1], "what is added")
        if fixed.shape[-2] not in (1, x.tokens):
            raise ValueError(
                f"the model has {fixed.shape[-2]} positions for {x.tokens} tokens: shorten the "
                "inputs (--max-length on the command line)"
            )
        centre = None if x.centre is None else x.centre + fixed
        far = float(fixed.norm(dim=-1).max()) * (1 + fixed.shape[-1] * _ROUND)
        size = plus(x.length, far)
        return x.moved(centre, 1.0, size, self.rounding(x, size, 1), x.width)

    def first(self, x: Region, index: int = 0) -> Region:
        """One token alone, such as the one that stands for the class."""
        self.tokens_only(x)
        return x.but(centre=None if x.centre is None else x.centre[:, [index]], tokens=1)

    def mean(self, x: Region, name: str | None = None) -> Region:
        """The mean of all tokens: 1/√tokens in l2, 1 in the largest token."""
        self.tokens_only(x)
        constant = over(1.0, math.sqrt(x.tokens) * (1 - _ROUND)) if self.norm == "l2" else 1.0
        self.note(name, "mean", "mean of the tokens", (), constant)
        centre = None if x.centre is None else x.centre.mean(dim=1, keepdim=True)
        y = x.moved(centre, constant, x.length, self.rounding(x, x.length, x.tokens + 1), x.width)
        return y.but(tokens=1)

    def beside(self, x: Region, y: Region) -> Region:
        """Two regions of as many tokens, concatenated along their width."""
        centre = None
        if x.centre is not None and y.centre is not None:
            centre = torch.cat((x.centre, y.centre), dim=-1)
        return x.but(
            width=x.width + y.width,
            lip=hypotenuse(x.lip, y.lip),
            err=hypotenuse(x.err, y.err),
        ).placed(centre, hypotenuse(x.radius, y.radius), hypotenuse(x.length, y.length))


def _floor(epsilon: float) -> float:
    return math.sqrt(epsilon) * (1 - _ROUND)


def _root(n: int) -> Numbers:
    return number(math.sqrt(n) * (1 + _ROUND))
