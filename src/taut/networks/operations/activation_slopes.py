"""Slopes of the activations: the smallest and the largest derivative, rounded outward.

A function with slopes in [a, b] is max(|a|, |b|)-Lipschitz. Functions that jump (Hardshrink,
Threshold) or grow faster than any line (ReLU squared) have no entry.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn import functional

from taut._base.rounding import enlarged

# Extreme slopes: GELU at ±√2 and, in its tanh form, at ±1.4185; SiLU at ±2.3994; Mish at 1.4906
# and −2.2564. The digits are from arbitrary precision, the last one rounded outward.
GELU = (-0.128904145185155, 1.128904145185155)
GELU_TANH = (-0.128993068658772, 1.128993068658772)
FAST_GELU = (-0.12899307, 1.12899307)  # the same with √(2/π) to ten digits
SILU = (-0.099839320128867, 1.099839320128867)
MISH = (-0.112526122389463, 1.088498161251728)
UNIT = (0.0, 1.0)


class Activation(NamedTuple):
    """A function of one number: how to compute it, and its slopes.

    Attributes
    ----------
    function
        Applied to tensors, entry by entry.
    low, high
        Its smallest and largest slope.
    jump
        How far it jumps where it is computed as another function from some point on.
    bend
        Lipschitz constant of its slope; infinite for a function with a kink.
    hinge
        Slope left of 0 of a function that is the identity right of it.
    accurate
        Whether it is known to err by less than 8 units of L|x| + |φ(0)| in the precision that it is
        computed in, as the functions of torch do. Bounds that rest on another one say that their
        rounding is estimated.
    """

    function: Callable[[torch.Tensor], torch.Tensor]
    low: float
    high: float
    jump: float = 0.0
    bend: float = math.inf
    hinge: float | None = None
    accurate: bool = False

    @property
    def constant(self) -> float:
        """Lipschitz constant."""
        return max(abs(self.low), abs(self.high))

    @property
    def at_zero(self) -> float:
        """|φ(0)|, so that |φ(x)| ≤ |φ(0)| + constant·|x|."""
        return enlarged(abs(float(self.function(torch.zeros(1, dtype=torch.float64))[0])), 4)


Slopes = tuple[float, float]
_FIXED: dict[str, Slopes] = {
    "Identity": (1.0, 1.0),
    "LinearActivation": (1.0, 1.0),
    "ReLU": UNIT,
    "ReLU6": UNIT,
    "Tanh": UNIT,
    "Hardtanh": UNIT,
    "Softsign": UNIT,
    "Softshrink": UNIT,
    "Tanhshrink": UNIT,
    "Softplus": UNIT,
    "LogSigmoid": UNIT,
    "CELU": UNIT,
    "Sigmoid": (0.0, 0.25),
    "Hardsigmoid": (0.0, 0.16666669),  # torch takes 1/6 in float32
    "Hardswish": (-0.5, 1.5),
    "SELU": (0.0, 1.758099340847377),
    "SiLU": SILU,
    "SiLUActivation": SILU,
    "QuickGELUActivation": SILU,  # x·sigmoid(1.702 x): the same slopes, another scale of x
    "Mish": MISH,
    "MishActivation": MISH,
    "GELUActivation": GELU,
    "NewGELUActivation": GELU_TANH,
    "FastGELUActivation": FAST_GELU,
    "GELUTanh": GELU_TANH,
    "PytorchGELUTanh": GELU_TANH,
    "AccurateGELUActivation": GELU_TANH,
}
# Largest second derivatives, from arbitrary precision and rounded up: at 0 for GELU, SiLU and
# Softplus, at ±0.6585 for tanh, ±1.3170 for the sigmoid, at 0 for Softsign, −0.09 for Mish.
_BENDS: dict[str, float] = {
    "Identity": 0.0,
    "LinearActivation": 0.0,
    "Tanh": 0.7699,
    "Tanhshrink": 0.7699,
    "Sigmoid": 0.09623,
    "LogSigmoid": 0.25,
    "Softsign": 2.0,
    "SiLU": 0.5,
    "SiLUActivation": 0.5,
    "QuickGELUActivation": 0.851,
    "Mish": 0.6505,
    "MishActivation": 0.6505,
    "GELU": 0.798,
    "GELUActivation": 0.798,
    "NewGELUActivation": 0.798,
    "FastGELUActivation": 0.798,
    "GELUTanh": 0.798,
    "PytorchGELUTanh": 0.798,
    "AccurateGELUActivation": 0.798,
    "gelu": 0.798,
    "silu": 0.5,
    "mish": 0.6505,
    "tanh": 0.7699,
    "sigmoid": 0.09623,
    "elu": 1.0,
    "softplus": 0.25,
}
_FUNCTIONS: dict[Any, Slopes] = {
    functional.relu: UNIT,
    torch.relu: UNIT,
    functional.gelu: GELU,
    functional.silu: SILU,
    functional.mish: MISH,
    functional.tanh: UNIT,
    torch.tanh: UNIT,
    functional.sigmoid: (0.0, 0.25),
    torch.sigmoid: (0.0, 0.25),
    functional.elu: UNIT,
    functional.leaky_relu: (0.01, 1.0),
    functional.softplus: UNIT,
}


def _of_module(module: nn.Module) -> Slopes | None:
    """Slopes of those that depend on a parameter, then of the others."""
    match module:
        case nn.GELU():
            return GELU if module.approximate == "none" else GELU_TANH
        case nn.LeakyReLU():
            return _and_one(module.negative_slope)
        case nn.PReLU():
            weight = module.weight.detach().double()
            return _and_one(float(weight.min()), float(weight.max()))
        case nn.ELU():
            return _and_one(0.0, module.alpha)
        case nn.RReLU():
            if module.training:
                return None
            return _and_one((module.lower + module.upper) / 2)
        case nn.CELU() if module.alpha <= 0:
            return None
        case nn.Softplus() if not (module.beta > 0 and module.threshold >= 10):
            return None  # below, torch's switch to the identity is a jump that one can see
    kind = type(module)
    known = kind.__module__.startswith(("torch.nn.", "transformers.activations"))
    return _FIXED.get(kind.__name__) if known else None


def _and_one(*slopes: float) -> Slopes:
    if not all(math.isfinite(slope) for slope in slopes):
        return (-math.inf, math.inf)
    return min(1.0, *slopes), max(1.0, *slopes)


def known_activation(function: Any) -> Activation:
    """An activation with its slopes, or an error that says how to give one."""
    found = function if isinstance(function, Activation) else activation_of(function)
    if found is None:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(
            f"the slopes of the activation {name} are not known; pass "
            "taut.networks.Activation(function, low, high) with its smallest and largest slope"
        )
    return found


def activation_of(function: Any) -> Activation | None:
    """The activation of a module or a function of torch, if it is known."""
    if isinstance(function, nn.Module):
        slopes = _of_module(function)
    else:
        slopes = _FUNCTIONS.get(function) if callable(function) else None
    if slopes is None:
        return None
    if isinstance(function, nn.PReLU):  # its weight must follow the precision of the input
        weight = function.weight.detach()
        hinge = float(weight) if weight.numel() == 1 else None
        return Activation(
            lambda x: functional.prelu(x, weight.to(x)), *slopes, hinge=hinge, accurate=True
        )
    jump = 0.0
    if isinstance(function, nn.Softplus):  # beyond its threshold torch takes the identity
        jump = math.log1p(math.exp(-function.threshold)) / function.beta
    elif function is functional.softplus:
        jump = math.log1p(math.exp(-20.0))
    return Activation(function, *slopes, jump, _bend(function), _hinge(function), accurate=True)


def _bend(function: Any) -> float:
    """Lipschitz constant of the slope."""
    match function:
        case nn.Softplus():
            return function.beta / 4
        case nn.ELU():
            return 1.0 if function.alpha == 1 else math.inf
        case nn.CELU():
            return 1 / function.alpha
    kind = type(function).__name__ if isinstance(function, nn.Module) else function.__name__
    return _BENDS.get(kind, math.inf)


def _hinge(function: Any) -> float | None:
    """Slope left of 0 of those that are the identity right of it."""
    match function:
        case nn.ReLU():
            return 0.0
        case nn.LeakyReLU():
            return float(function.negative_slope)
        case nn.RReLU():
            return (function.lower + function.upper) / 2
    if function in (functional.relu, torch.relu):
        return 0.0
    return 0.01 if function is functional.leaky_relu else None
