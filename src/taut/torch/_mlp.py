"""Two linear maps with an activation between them, bounded as one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn

from taut.torch._activations import Activation
from taut.torch._frame import Frame
from taut.torch._maps import TokenMaps
from taut.torch._numbers import Numbers, hypotenuse, plus, times
from taut.torch._region import CENTRE, Region
from taut.torch._spectral import frobenius, length, rows, spectral, spectral_product

Affine = tuple[torch.Tensor, torch.Tensor | None]  # weight as (outputs, inputs), bias


class MlpMaps(TokenMaps):
    """Feed-forward blocks, plain and gated."""

    def mlp(
        self, x: Region, first: Affine, function: Any, second: Affine, name: str = "mlp"
    ) -> Region:
        """Linear, activation, linear (theorem mlp-split).

        With slopes from a to b, φ is c = (a + b)/2 times the identity and something of constant
        h = (b − a)/2, so the whole has the constant ``|c|·‖W₂W₁‖ + h·‖W₂‖·‖W₁‖``.
        """
        act = function if isinstance(function, Activation) else self.known(function)
        (w1, b1), (w2, b2) = first, second
        self.fits(x, w1.shape[1], "an MLP")
        norm1, norm2 = spectral(w1), spectral(w2)
        apart = times(norm2, norm1)
        middle, half = abs(act.low + act.high) / 2, (act.high - act.low) / 2 * (1 + 1e-15)
        split = plus(times(middle, spectral_product(w2, w1)), times(half, apart))
        constant = np.minimum(times(act.constant, apart), split)
        self.note(name, "mlp", "split slopes", ("mlp-split", "spectral"), constant)
        centre = None
        if x.centre is not None:
            centre = act.function(_affine(self, x.centre, first))
            centre = _affine(self, centre, second)
        inner = plus(times(norm1, x.length), length(b1))
        hidden = plus(times(act.constant, inner), act.at_zero * math.sqrt(w1.shape[0]))
        size = plus(times(norm2, hidden), length(b2))
        # Rounding of each of the three steps, carried through those that follow.
        one = times(act.constant, norm2, plus(times(frobenius(w1), x.length), length(b1)))
        two = times(norm2, hidden)
        three = plus(times(frobenius(w2), hidden), length(b2))
        lost = plus(
            self.rounding(x, one, w1.shape[1] + 1),
            self.rounding(x, two, 8),
            self.rounding(x, three, w2.shape[1] + 1),
        )
        return x.moved(centre, constant, size, lost, w2.shape[0])

    def gated(
        self, x: Region, gate: Affine, function: Any, up: Affine, down: Affine, name: str = "mlp"
    ) -> Region:
        """down(activation(gate x)·(up x)), as in SwiGLU (theorem gated-mlp)."""
        act = function if isinstance(function, Activation) else self.known(function)
        self.fits(x, gate[0].shape[1], "a gated MLP")
        g, opened = _reach(self, x, gate)
        u, values = _reach(self, x, up)
        passed = plus(times(act.constant, g), act.at_zero)  # largest |activation|
        if opened is not None and values is not None:
            passed = np.minimum(
                passed, _largest(act.function(opened)) + times(act.constant, _drift(x, gate))
            )
        wg, wu, wd = spectral(gate[0]), spectral(up[0]), spectral(down[0])
        a, b = times(act.constant, u), passed
        together = times(hypotenuse(a, b), spectral(gate[0], up[0]))
        inner = np.minimum(plus(times(a, wg), times(b, wu)), together)
        constant = times(wd, inner)
        self.note(name, "gated mlp", "gate and value", ("gated-mlp", "spectral"), constant)
        centre = None
        if opened is not None and values is not None:
            centre = _affine(self, act.function(opened) * values, down)
        long = plus(times(wu, x.length), length(up[1]))
        hidden = times(passed, long)
        size = plus(times(wd, hidden), length(down[1]))
        rough = plus(times(frobenius(gate[0]), x.length), length(gate[1]))
        fine = plus(times(frobenius(up[0]), x.length), length(up[1]))
        lost = plus(
            self.rounding(x, times(wd, plus(times(a, rough), times(b, fine))), x.width + 1),
            self.rounding(x, times(wd, hidden), 10),
            self.rounding(x, times(frobenius(down[0]), hidden), down[0].shape[1] + 1),
        )
        return x.moved(centre, constant, size, lost, down[0].shape[0])


def affine(module: Any) -> Affine:
    """Weight as (outputs, inputs) and bias of a Linear or of GPT-2's transposed Conv1D."""
    kind = type(module)
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return module.weight.mT, module.bias
    if not isinstance(module, nn.Linear) or kind.forward is not nn.Linear.forward:
        raise TypeError(f"expected a plain Linear or Conv1D, got {kind.__name__}")
    return module.weight, module.bias


def _affine(run: Frame, x: torch.Tensor, map_: Affine) -> torch.Tensor:
    y = x @ run.tensor(map_[0]).mT
    return y if map_[1] is None else y + run.tensor(map_[1])


def _largest(x: torch.Tensor) -> Numbers:
    """Largest absolute number of every sample."""
    return np.asarray(x.detach().abs().flatten(1).amax(dim=1).cpu().numpy()) * CENTRE


def _drift(x: Region, map_: Affine) -> Numbers:
    """How far a coordinate can be from its centre: longest row times radius."""
    return times(float(rows(map_[0]).max()), x.radius)


def _reach(run: Frame, x: Region, map_: Affine) -> tuple[Numbers, torch.Tensor | None]:
    """Largest absolute coordinate of an affine map, and its centre."""
    if x.centre is not None:
        centre = _affine(run, x.centre, map_)
        return plus(_largest(centre), _drift(x, map_)), centre
    fixed = 0.0 if map_[1] is None else float(map_[1].detach().double().abs().max())
    return plus(times(float(rows(map_[0]).max()), x.length), fixed), None
