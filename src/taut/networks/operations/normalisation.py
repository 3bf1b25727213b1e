"""Norm layers: LayerNorm and RMSNorm of every token."""

from __future__ import annotations

import math

import numpy as np
import torch

from taut._base.rounding import EPS, Numbers, down, over, plus, reduced, root, times
from taut.networks.operations.setting import Setting
from taut.networks.region import Region
from taut.networks.weight_norms import host, largest, length


class NormOperations(Setting):
    """LayerNorm and RMSNorm."""

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
        # No coordinate can be more than √d: x/√(mean x² + ε). And no more than the input allows.
        unit = np.minimum(root(x.width), over(x.length, floor))
        size = plus(times(top, unit), fixed)
        lost = plus(times(constant, x.length), times(2.0, size))
        return x.moved(centre, constant, size, self.rounding(x, lost, x.width + 8), x.width)


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
