"""Activations, and products of two nodes, entry by entry."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.operations.activation_slopes import Activation
from taut.networks.propagation.activation_lines import Lines, lines
from taut.networks.propagation.choices import HingeChoices
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
        self.lines: Lines | None = None
        self.choices: HingeChoices | None = None  # of rows from below

    def value(self) -> torch.Tensor:
        """φ(x)."""
        return self.act.function(self.parents[0].centre)

    def prepare(self, engine: Engine) -> None:
        """Lines on the interval of every entry, and the interval of what comes out.

        Rounding: less than 8 units of L|x| + |φ(0)| for every activation of the table.
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
        slope = rows.of(found.slope)
        rounding = 4 * EPS * rows.weighed(self.parents[0].sizes) * self.act.constant
        if lower and found.below is not None and found.floor is not None:
            if self.choices is not None:
                return self._pull_chosen(Rows(rows.dense(self.tokens)), self.choices)
            up, down = rows.values.clamp(min=0.0), rows.values.clamp(max=0.0)
            below, floor = rows.of(found.below), rows.of(found.floor)
            values = up * below + down * slope
            ends = up * floor + down * rows.of(found.high)
            shift = ends.flatten(1).sum(dim=1)
            doubt = ends.abs().flatten(1).sum(dim=1) * (ends[0].numel() * EPS)
            return Pulled((rows.but(values),), shift, 0.0, rounding + doubt)
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
        """As :meth:`pull` from below, with slopes and signs of the row's own.

        All lines go through 0, where φ is 0. Where the sign is known φ is a line itself, and
        sign·input ≥ 0 times a multiplier is subtracted.
        """
        assert self.lines is not None
        assert self.act.hinge is not None
        (x,) = self.parents
        assert x.box is not None
        found, at, left = self.lines, chosen.places, self.act.hinge
        flat = rows.values.flatten(1)
        up, down = flat.clamp(min=0.0), flat.clamp(max=0.0)
        slope, high = (each.flatten()[None].expand_as(flat) for each in (found.slope, found.high))
        assert found.below is not None
        assert found.floor is not None
        below, floor = (each.flatten()[None].expand_as(flat) for each in (found.below, found.floor))
        middle, box = x.centre.flatten()[at], x.box.flatten()[at]
        here, doubt = torch.maximum(middle, left * middle), 8 * EPS * (middle.abs() + box)
        line, top = chosen.slopes, slope[:, at]
        over = high[:, at]
        if chosen.signs is not None:
            known = torch.where(chosen.signs > 0, torch.ones_like(line), left)
            free = chosen.signs == 0
            line, top = torch.where(free, line, known), torch.where(free, top, known)
            over = torch.where(free, over, known * middle - here + doubt)
        below = below.index_copy(1, at, line)
        floor = floor.index_copy(1, at, line * middle - here - doubt)
        slope, high = slope.index_copy(1, at, top), high.index_copy(1, at, over)
        values = up * below + down * slope
        ends = up * floor + down * high
        shift = ends.sum(dim=1)
        rounding = 4 * EPS * rows.weighed(x.sizes) * self.act.constant
        rounding = rounding + ends.abs().sum(dim=1) * (flat.shape[1] * EPS)
        if chosen.signs is not None and chosen.multipliers is not None:
            push = chosen.multipliers * chosen.signs
            values = values.index_add(1, at, push, alpha=-1)
            shift = shift - (push * middle).sum(dim=1)
            most = (push.abs() * (middle.abs() + box)).sum(dim=1)
            rounding = rounding + most * ((len(at) + 8) * EPS)
        return Pulled((rows.but(values.reshape(rows.values.shape)),), shift, 0.0, rounding)


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
