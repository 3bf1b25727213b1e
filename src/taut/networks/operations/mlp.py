"""Two linear maps with an activation between them, bounded as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from taut._base.rounding import EPS, Numbers, hypotenuse, plus, root, times, up
from taut.networks.operations.activation import ActivationOperations
from taut.networks.operations.linear import Affine, applied
from taut.networks.operations.setting import Setting
from taut.networks.region import Region
from taut.networks.weight_norms import (
    frobenius,
    host,
    largest,
    length,
    longest_row,
    spectral,
    spectral_product,
)


class MlpOperations(ActivationOperations):
    """Feed-forward blocks, plain and gated."""

    def mlp(
        self, x: Region, first: Affine, function: Any, second: Affine, name: str = "mlp"
    ) -> Region:
        """Linear, activation, linear (theorem mlp-split).

        With slopes from a to b, φ is c = (a + b)/2 times the identity and something of constant
        h = (b − a)/2, so the whole has the constant ``|c|·‖W₂W₁‖ + h·‖W₂‖·‖W₁‖``.

        Rounding: that of the linear maps and of the activation, each multiplied by the constants of
        what follows, none of which depends on the centre.
        """
        act = self.known(function)
        (w1, b1), (w2, b2) = first, second
        self.fits(x, w1.shape[1], "an MLP")
        norm1, norm2 = spectral(w1), spectral(w2)
        apart = times(norm2, norm1)
        middle = (act.low + act.high) / 2
        half = up(max(act.high - middle, middle - act.low))
        split = plus(times(abs(middle), spectral_product(w2, w1)), times(half, apart))
        constant = np.minimum(times(act.constant, apart), split)
        self.leaf(name, "mlp", constant, "split slopes", "mlp-split", "spectral")
        centre = None
        if x.centre is not None:
            centre = applied(self, second, act.function(applied(self, first, x.centre)))
        inner = plus(times(norm1, x.length), length(b1))
        hidden = plus(times(act.constant, inner), times(act.at_zero, root(w1.shape[0])))
        sums = plus(times(frobenius(w1), x.length), length(b1))
        jump = times(act.jump, norm2, root(w1.shape[0] * x.tokens))
        rounding = (
            self.rounding(x, times(act.constant, norm2, sums), w1.shape[1] + 1)
            + self.rounding(x, times(norm2, hidden), 8)
            + self.rounding(x, plus(times(frobenius(w2), hidden), length(b2)), w2.shape[1] + 1)
            + self.offset(jump)
        )
        size = plus(times(norm2, hidden), length(b2))
        return x.moved(centre, constant, size, rounding, w2.shape[0])

    def gated(
        self, x: Region, gate: Affine, function: Any, value: Affine, down: Affine, name: str = "mlp"
    ) -> Region:
        """down(activation(gate x)·(value x)), as in SwiGLU (theorem gated-mlp).

        Rounding: gate and value err like linear maps, and a is what an error of the gate is
        multiplied by, b one of the value. The activation errs by less than 8 EPS of
        ``L|g| + |φ(0)|``, which the values multiply; the last map is linear.
        """
        act = self.known(function)
        self.fits(x, gate[0].shape[1], "a gated MLP")
        g, opened = _coordinates(self, x, gate)
        u, values = _coordinates(self, x, value)
        most = plus(times(act.constant, g), act.at_zero, act.jump)  # of the activation
        passed, centre = most, None
        if opened is not None and values is not None:
            through = act.function(opened)
            centre = applied(self, down, through * values)
            error = plus(times(8 * EPS, most), act.jump)
            moves = times(act.constant, _moves(x, gate))
            passed = np.minimum(most, plus(_largest(through), error, moves))
        wg, wv, wd = spectral(gate[0]), spectral(value[0]), spectral(down[0])
        a, b = times(act.constant, u), passed
        together = times(hypotenuse(a, b), spectral(gate[0], value[0]))
        constant = times(wd, np.minimum(plus(times(a, wg), times(b, wv)), together))
        self.leaf(name, "gated mlp", constant, "gate and value", "gated-mlp", "spectral")
        long = plus(times(wv, x.length), length(value[1]))
        hidden = times(passed, long)
        gates = times(a, plus(times(frobenius(gate[0]), x.length), length(gate[1])))
        sums = times(b, plus(times(frobenius(value[0]), x.length), length(value[1])))
        last = plus(times(frobenius(down[0]), hidden), length(down[1]))
        rounding = (
            self.rounding(x, times(wd, plus(gates, sums)), x.width + 1)
            + self.rounding(x, times(wd, most, long), 10)
            + self.rounding(x, last, down[0].shape[1] + 1)
            + self.offset(times(wd, act.jump, long, root(x.tokens)))
        )
        size = plus(times(wd, hidden), length(down[1]))
        return x.moved(centre, constant, size, rounding, down[0].shape[0])


def _largest(x: torch.Tensor) -> Numbers:
    """Largest absolute number of every sample."""
    return host(x.abs().flatten(1).amax(dim=1))


def _moves(x: Region, map_: Affine) -> Numbers:
    """How far a coordinate can be from that of the centre, by the region and by rounding."""
    row, fixed = longest_row(map_[0]), _entry(map_[1])
    rounding = times(EPS * (x.width + 1), plus(times(row, x.length), fixed))
    return plus(times(row, x.away), rounding)


def _entry(bias: torch.Tensor | None) -> float:
    return 0.0 if bias is None else largest(bias)


def _coordinates(run: Setting, x: Region, map_: Affine) -> tuple[Numbers, torch.Tensor | None]:
    """Largest absolute coordinate of an affine map, and its centre."""
    if x.centre is not None:
        centre = applied(run, map_, x.centre)
        return plus(_largest(centre), _moves(x, map_)), centre
    return plus(times(longest_row(map_[0]), x.length), _entry(map_[1])), None
