"""Activations beyond a line (theorem ellipsoid-activation)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from taut._base.rounding import EPS
from taut.networks.ellipsoids.ellipsoid import box, reach, series, summed
from taut.networks.operations.activation_slopes import Activation
from taut.networks.propagation.activation_lines import lines

ORDERS = 12  # of GELU's power series, at most
CRAMER = 0.4335  # |Heₙ(x)|·e^(−x²/2)/√(2π) ≤ this times √n!


def activation_error(
    act: Activation, middle: torch.Tensor, matrix: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A slope for each entry, and the ellipsoid of the activation minus that line.

    Parameters
    ----------
    middle
        Where the entries are, (entries,).
    matrix
        The ellipsoid of how far they move.
    """
    far = reach(matrix)
    if is_gelu(act) and bool((far < 2).all()):
        return _gelu(middle, far, matrix)
    found = lines(act, middle, far)
    return found.slope, box(torch.maximum(found.low.abs(), found.high.abs()))


def is_gelu(act: Activation) -> bool:
    """Whether it is xΦ(x), exactly."""
    function = act.function
    if isinstance(function, nn.GELU):
        return function.approximate == "none"
    name = type(function).__name__
    return function is functional.gelu or (name == "GELUActivation" and act.jump == 0)


def _gelu(
    middle: torch.Tensor, far: torch.Tensor, matrix: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Taylor's series: the k-th derivative is (−1)ᵏ(He₍ₖ₋₂₎ − Heₖ) times the normal density.

    Hermite's polynomials err by a few units of the sum of the absolute values of their terms.
    """
    density = torch.exp(-middle.square() / 2) / math.sqrt(2 * math.pi)
    slope = torch.special.ndtr(middle) + middle * density
    one, size = torch.ones_like(middle), middle.abs()
    values, sizes = [one, middle], [one, size]
    for k in range(1, ORDERS):
        values.append(middle * values[-1] - k * values[-2])
        sizes.append(size * sizes[-1] + k * sizes[-2])
    powers, rests, doubt = [], [], 64 * EPS * (1 + size) * far
    for k in range(2, ORDERS + 1):
        unit = density / math.factorial(k)
        powers.append((-1) ** k * (values[k - 2] - values[k]) * unit)
        units = (16 * k + 4 * size.square()) * EPS
        doubt = doubt + units * (sizes[k - 2] + sizes[k]) * unit * far**k
        roots = math.sqrt(math.factorial(k - 1)) + math.sqrt(math.factorial(k + 1))
        rests.append(CRAMER * roots / math.factorial(k + 1) * far ** (k + 1) + doubt)
    return slope, summed(*series(matrix, powers, rests[1:], 2))
