"""Activations beyond a line (theorem ellipsoid-activation)."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from taut._base.rounding import EPS
from taut.networks.ellipsoids.ellipsoid import NEGLIGIBLE, box, reach, scaled, summed, widen
from taut.networks.operations.activation_slopes import Activation
from taut.networks.propagation.activation_lines import lines

ORDERS = 12  # of GELU's power series, at most
CRAMER = 0.4335  # |Heₙ(x)|·e^(−x²/2)/√(2π) ≤ this times √n!


def activation_error(
    act: Activation, middle: torch.Tensor, linear: torch.Tensor, beyond: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A slope for each entry, and the ellipsoid of the activation minus that line.

    Parameters
    ----------
    middle
        Where the entries are, (entries,).
    linear, beyond
        Ellipsoids of how far they move: their linear change, and the rest.
    """
    full = summed(linear, beyond)
    far = reach(full)
    if is_gelu(act) and bool((far < 2).all()):
        return _gelu(middle, far, (linear, beyond, full))
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
    middle: torch.Tensor,
    far: torch.Tensor,
    moves: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Taylor's series: the k-th derivative is (−1)ᵏ(He₍ₖ₋₂₎ − Heₖ) times the normal density.

    For a linear change a and the rest b, (a + b)² = a² + 2b(a + b/2), and (a + b)ᵏ − aᵏ is a sum of
    k products of b with k − 1 factors a or a + b. Hermite's polynomials err by a few units of the
    sum of the absolute values of their terms.
    """
    linear, beyond, full = moves
    density = torch.exp(-middle.square() / 2) / math.sqrt(2 * math.pi)
    slope = torch.special.ndtr(middle) + middle * density
    one, size = torch.ones_like(middle), middle.abs()
    values, sizes = [one, middle], [one, size]
    for k in range(1, ORDERS):
        values.append(middle * values[-1] - k * values[-2])
        sizes.append(size * sizes[-1] + k * sizes[-2])
    power, times = linear, summed(linear, beyond / 4)  # of a, and what b is multiplied with
    parts, doubt = [], 64 * EPS * (1 + size) * far
    for k in range(2, ORDERS + 1):
        unit = density / math.factorial(k)
        factor = (-1) ** k * (values[k - 2] - values[k]) * unit
        units = (16 * k + 4 * size.square()) * EPS
        doubt = doubt + units * (sizes[k - 2] + sizes[k]) * unit * far**k
        power = power * linear
        if k > 2:
            times = full if k == 3 else times
            times = times * full
        both = power, k**2 * beyond * times
        parts += [widen(scaled(each, factor), 8 * k) for each in both]
        roots = math.sqrt(math.factorial(k - 1)) + math.sqrt(math.factorial(k + 1))
        rest = CRAMER * roots / math.factorial(k + 1) * far ** (k + 1) + doubt
        if float(rest.sum()) ** 2 < NEGLIGIBLE * float(parts[0].diagonal().sum()):
            break
    return slope, summed(*parts, box(rest))
