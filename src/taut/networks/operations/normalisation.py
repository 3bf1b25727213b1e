"""Norm layers: LayerNorm and RMSNorm of every token, BatchNorm with fixed statistics."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from taut._base.rounding import EPS, Numbers, down, enlarged, over, plus, reduced, root, times
from taut.networks.operations.setting import Setting
from taut.networks.region import Region, longest
from taut.networks.weight_norms import host, largest, length


class NormOperations(Setting):
    """Centring, LayerNorm, RMSNorm and BatchNorm."""

    def centre(self, x: Region, name: str | None = None) -> Region:
        """Every token less the mean of its entries: a projection, which is 1-Lipschitz.

        Rounding: a mean, whose error counts √d times, and a subtraction: γ_{d+2}|x|.
        """
        self.tokens_only(x)
        self.leaf(name, "centre", 1.0, "projection onto a subspace", "nonexpansive")
        centre = None
        if x.centre is not None:
            centre = x.centre - x.centre.mean(dim=-1, keepdim=True)
        return x.moved(centre, 1.0, x.length, self.rounding(x, x.length, x.width + 3), x.width)

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
        """LayerNorm (``centred``) or RMSNorm of every token (theorem norm-layer).

        Rounding: subtracting the mean moves the token by γ_{d+2}|x|, which the constant of what
        follows multiplies (the region's, as :func:`_least_spread` leaves room for that move). The
        mean square, root, division, gain and shift err by γ_{d+8} of the output.
        """
        self.fits(x, x.width if gain is None else gain.shape[0], "a norm layer")
        top, fixed = largest(gain), length(shift)
        centre, spread, floor = None, np.zeros(1), down(math.sqrt(epsilon))
        if x.centre is not None:
            middle = x.centre - x.centre.mean(dim=-1, keepdim=True) if centred else x.centre
            power = middle.square().mean(dim=-1, keepdim=True)
            if not bool(torch.isfinite(power).all()):
                raise ValueError("the mean square of a token overflows in float64 at these inputs")
            spread = _least_spread(x, power)
            centre = middle / (power + epsilon).sqrt()
            centre = centre if gain is None else centre * self.tensor(gain)
            centre = centre if shift is None else centre + self.tensor(shift)
        constant = over(top, reduced(np.sqrt(spread**2 + epsilon), 4))
        if x.centre is not None:
            constant = np.minimum(constant, over(top, floor))
        where = "1/√ε" if x.centre is None else "1/√(var + ε)"
        self.leaf(name, "norm", constant, f"max|gain|·{where}", "norm-layer")
        size = plus(times(top, _longest_output(x.length, x.width, epsilon)), fixed)
        lost = plus(times(constant, x.length), times(2.0, size))
        return x.moved(centre, constant, size, self.rounding(x, lost, x.width + 8), x.width)

    def batch_norm(self, x: Region, fixed: FixedNorm, name: str | None = None) -> Region:
        """BatchNorm as it is used: (x − mean)·factor + shift, the statistics being fixed.

        Its constant is the largest factor. Rounding: the factor errs by 4 units, its product with
        the mean by 6 and with x by 5; whether these are subtracted before or after, 8 units of
        |factor·x| + |factor·mean| + |shift| are enough.
        """
        factor, mean, shift = (self.tensor(each) for each in fixed)
        constant = enlarged(largest(factor), 4)
        self.leaf(name, "norm", constant, "largest factor", "spectral")
        centre = None
        if x.centre is not None:
            centre = (x.centre - mean) * factor + shift
        shape = x.image or (x.tokens, x.width)
        far = [longest(each.expand(shape)[None])[0] for each in (factor * mean, shift)]
        size = enlarged(plus(times(constant, x.length), *far), 8)
        return x.moved(centre, constant, size, self.rounding(x, size, 8), x.width)


class FixedNorm(NamedTuple):
    """BatchNorm in eval mode: each is of the shape of a token or image, or broadcasts to it."""

    factor: torch.Tensor
    mean: torch.Tensor
    shift: torch.Tensor


def _longest_output(length: Numbers, width: int, epsilon: float) -> Numbers:
    """R/√(R²/d + ε): x/√(|x|²/d + ε) grows with |x| ≤ R.

    It is at most R/√ε and √d, which is all that is said of lengths whose squares would overflow.
    """
    simple = np.minimum(root(width), over(length, down(math.sqrt(epsilon))))
    usual = np.clip(length, 1e-100, 1e100)
    below = reduced(np.sqrt(usual * usual / width + epsilon), 8)
    return np.where(length == usual, np.minimum(simple, over(usual, below)), simple)


def _least_spread(x: Region, power: torch.Tensor) -> Numbers:
    """Least root mean square of a token of the region, after its mean was subtracted.

    ``power`` is the mean square as computed at the centre. In exact arithmetic its root is
    1/√d-Lipschitz in the token. The mean errs by γ_d|x|/√d, so the root by less than
    (d + 2)·EPS·|x|; squares, their mean and its root err by γ_{d+3} of themselves.
    """
    d = x.width
    found = reduced(host(power.sqrt().flatten(1).amin(dim=1)), d + 8)
    falls = over(x.away, down(math.sqrt(d)))
    least: Numbers = down(found - plus(times((d + 8) * EPS, x.length), falls))
    return least
