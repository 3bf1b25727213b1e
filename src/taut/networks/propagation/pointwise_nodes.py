"""Activations, and products of two nodes, entry by entry."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.operations.activation_slopes import Activation
from taut.networks.propagation.activation_lines import Lines, lines
from taut.networks.propagation.choices import HingeChoices, HingeStops
from taut.networks.propagation.node import Node, Pulled, box_size
from taut.networks.propagation.rows import Rows

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class ActivationNode(Node):
    """A function of one number, applied to every entry (theorem affine-activation)."""

    kind = "activation"

    def __init__(self, x: Node, act: Activation) -> None:
        self.act = act
        super().__init__(x)
        self.uneven = act.hinge is not None
        self.assumed = not act.accurate
        self.lines: Lines | None = None
        self.choices: HingeChoices | None = None  # of rows from below
        self.stops: HingeStops | None = None

    def value(self) -> torch.Tensor:
        """φ(x)."""
        return self.act.function(self.parents[0].centre)

    def prepare(self, engine: Engine) -> None:
        """Lines on the interval of every entry, and the interval of what comes out.

        Rounding: less than 8 units of L|x| + |φ(0)| for every activation of the table; for another
        one this is assumed, and the result calls its rounding estimated.
        """
        (x,) = self.parents
        box = engine.box(x)
        self.centre = self.value()
        self.lines = found = lines(self.act, x.centre, box)
        size = self.act.constant * x.longest + self.act.at_zero * math.sqrt(self.width)
        self.local = engine.unit * 8 * size + self.act.jump * math.sqrt(self.width)
        self.sizes = self.act.constant * x.sizes + self.local
        far = torch.maximum(found.low.abs(), found.high.abs())
        lipschitz = self.act.constant * box + 16 * EPS * self.centre.abs() + 2 * self.act.jump
        bound = torch.minimum(found.slope.abs() * box + far, lipschitz) * (1 + 1e-9)
        self.box = bound + self.local[:, None]
        self.sizes = torch.minimum(self.sizes, box_size(self.box))

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """Rows times slopes; where only the lower side counts, the line that its sign asks for."""
        assert self.lines is not None
        found = self.lines
        if self.stops is not None:
            return self._pull_stopped(Rows(rows.dense(self.tokens)), self.stops)
        if not lower or found.below is None or found.floor is None:
            return self._pull_both(rows)
        if self.choices is not None:
            return self._pull_chosen(Rows(rows.dense(self.tokens)), self.choices)
        rounding = 4 * EPS * rows.weighed(self.parents[0].sizes) * self.act.constant
        up, down = rows.values.clamp(min=0.0), rows.values.clamp(max=0.0)
        values = up * rows.of(found.below) + down * rows.of(found.slope)
        ends = up * rows.of(found.floor) + down * rows.of(found.high)
        shift = ends.flatten(1).sum(dim=1)
        doubt = ends.abs().flatten(1).sum(dim=1) * (ends[0].numel() * EPS)
        return Pulled((rows.but(values),), shift, 0.0, rounding + doubt)

    def _pull_both(self, rows: Rows) -> Pulled:
        """Both sides: the chord, and half of the distance of the lines as error."""
        assert self.lines is not None
        found = self.lines
        slope = rows.of(found.slope)
        rounding = 4 * EPS * rows.weighed(self.parents[0].sizes) * self.act.constant
        middle, half = (found.high + found.low) / 2, (found.high - found.low) / 2
        shift = rows.on(middle)
        error = (rows.values.abs() * rows.of(half)).flatten(1).sum(dim=1) * (1 + 1e-9)
        doubt = (rows.values.abs() * rows.of(middle.abs())).flatten(1).sum(dim=1)
        rounding = rounding + doubt * ((self.centre.numel() + 4) * EPS)
        return Pulled((rows.but(rows.values * slope),), shift, error, rounding)

    @property
    def bent(self) -> torch.Tensor:
        """The entries, counted through all tokens, where a slope from below can be chosen."""
        if self.lines is None or self.lines.below is None:
            return torch.zeros(0, dtype=torch.long)
        return self.lines.bent.flatten().nonzero()[:, 0]

    @property
    def limits(self) -> tuple[float, float]:
        """Between which a slope from below may be chosen."""
        assert self.act.hinge is not None
        return self.act.hinge, 1.0

    def _pull_chosen(self, rows: Rows, chosen: HingeChoices) -> Pulled:
        """As :meth:`pull` from below, with slopes of the row's own; all lines go through 0."""
        assert self.lines is not None
        assert self.lines.below is not None
        assert self.lines.floor is not None
        (x,) = self.parents
        at, flat = chosen.places, rows.values.flatten(1)
        slope, high, below, floor = (
            each.flatten()[None]
            for each in (self.lines.slope, self.lines.high, self.lines.below, self.lines.floor)
        )
        higher = (chosen.slopes - below[:, at]) * x.centre.flatten()[at]
        lines = below.expand_as(flat).index_copy(1, at, chosen.slopes)
        ends = floor.expand_as(flat).index_add(1, at, higher)
        up, down = flat.clamp(min=0.0), flat.clamp(max=0.0)
        moved = up * lines + down * slope
        chosen.onward = moved[:, at].detach()
        values = moved.reshape(rows.values.shape)
        ends = up * ends + down * high
        rounding = 4 * EPS * rows.weighed(x.sizes) * self.act.constant
        rounding = rounding + ends.abs().sum(dim=1) * (flat.shape[1] * EPS)
        return Pulled((rows.but(values),), ends.sum(dim=1), 0.0, rounding)

    def _pull_stopped(self, rows: Rows, stops: HingeStops) -> Pulled:
        """The stops take down their coefficients; all other entries are as for both sides."""
        flat = rows.values.flatten(1)
        stops.coefficients = flat[:, stops.places].detach()
        rest = rows.but(flat.index_fill(1, stops.places, 0.0).reshape(rows.values.shape))
        pulled = self._pull_both(rest)
        (kept,) = pulled.rows
        assert kept is not None
        values = kept.values.flatten(1).index_copy(1, stops.places, stops.onward)
        onward = rows.but(values.reshape(kept.values.shape))
        return Pulled((onward,), pulled.shift, pulled.error, pulled.rounding)


class ProductNode(Node):
    """Two nodes multiplied entry by entry, as in a gated MLP (theorem affine-product).

    x·y = x₀y₀ + x₀·δy + y₀·δx + δx·δy, and the last term is at most the product of both radii.
    """

    kind = "product"

    def __init__(self, x: Node, y: Node) -> None:
        super().__init__(x, y)
        self.both = torch.zeros_like(self.centre)

    def value(self) -> torch.Tensor:
        """x∘y."""
        x, y = self.parents
        return x.centre * y.centre

    def prepare(self, engine: Engine) -> None:
        """Radii of both factors."""
        x, y = self.parents
        one, other = engine.box(x), engine.box(y)
        self.centre = self.value()
        self.both = one * other * (1 + 1e-12)
        box = one * y.centre.abs() + other * x.centre.abs() + self.both
        most = (x.centre.abs() + one) * (y.centre.abs() + other)
        self.local = engine.unit * 2 * most.norm(dim=-1)
        self.box = box * (1 + 1e-9) + self.local[:, None]
        self.sizes = box_size(self.box)

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """Rows times the other factor's centre."""
        x, y = self.parents
        error = (rows.values.abs() * rows.of(self.both)).flatten(1).sum(dim=1) * (1 + 1e-9)
        pulled = tuple(rows.but(rows.values * rows.of(other.centre)) for other in (y, x))
        most = sum(other.centre.abs().amax(dim=-1) * one.sizes for one, other in ((x, y), (y, x)))
        assert isinstance(most, torch.Tensor)
        return Pulled(pulled, 0.0, error, 4 * EPS * rows.weighed(most))
