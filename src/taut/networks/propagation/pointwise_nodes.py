"""Activations, and products of two nodes, entry by entry."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.operations.activation_slopes import Activation
from taut.networks.propagation.activation_lines import Lines, lines
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
        self.choosing = False  # whether slopes from below are being optimised
        self.chosen: torch.Tensor | None = None

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
            up, down = rows.values.clamp(min=0.0), rows.values.clamp(max=0.0)
            below, floor = rows.of(found.below), rows.of(found.floor)
            if self.choosing:
                below = self._choose(below, rows)
                # both lines go through 0, where φ is 0
                floor = floor + (below - rows.of(found.below)) * rows.of(self.parents[0].centre)
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
    def is_bent(self) -> bool:
        """Whether a slope from below can be chosen somewhere."""
        return self.lines is not None and self.lines.below is not None

    def within(self, slopes: torch.Tensor) -> torch.Tensor:
        """Slopes brought between those of both sides."""
        assert self.act.hinge is not None
        return slopes.clamp(self.act.hinge, 1.0)

    def _choose(self, below: torch.Tensor, rows: Rows) -> torch.Tensor:
        """The chosen slopes where the function is bent, at first those that it has."""
        assert self.lines is not None
        if self.chosen is None or self.chosen.shape != rows.values.shape:
            self.chosen = below.expand_as(rows.values).detach().clone()
        if not self.chosen.requires_grad:
            self.chosen = self.chosen.detach().clone().requires_grad_(True)
        return torch.where(rows.of(self.lines.bent), self.chosen, below)


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
