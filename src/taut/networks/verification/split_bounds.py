"""Bounds of functions on branches of a condensed network (theorem split-multipliers)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.ascent import Leaf, ascend
from taut.networks.verification.condensed import Condensed, Functions

SLOPE, MULTIPLIER = 0.2, 0.05  # rates of the ascent


@dataclass
class Branches:
    """Several sign patterns, one in each row; every tensor is (branches, ReLUs).

    Attributes
    ----------
    signs
        1 where only inputs ≥ 0 of a ReLU count, −1 where only those ≤ 0 do, 0 where both do.
    slopes
        Of the lines below the ReLUs.
    multipliers
        Numbers ≥ 0 for the conditions that ``signs`` are.
    lower
        The best bound so far, (branches,).
    """

    signs: torch.Tensor
    slopes: torch.Tensor
    multipliers: torch.Tensor
    lower: torch.Tensor

    def __len__(self) -> int:
        return len(self.signs)

    @property
    def parts(self) -> tuple[torch.Tensor, ...]:
        """Everything, in the order of the fields."""
        return self.signs, self.slopes, self.multipliers, self.lower

    def chosen(self, index: torch.Tensor) -> Branches:
        """Some of them."""
        return Branches(*(part[index] for part in self.parts))

    def joined(self, other: Branches) -> Branches:
        """All of both."""
        return Branches(*map(torch.cat, zip(self.parts, other.parts, strict=True)))


class SplitBounds:
    """Lower bounds of functions on branches; ``relus`` are those of all of them."""

    def __init__(self, relus: Condensed) -> None:
        self.relus = relus
        self.low, self.high = relus.low.clone(), relus.high.clone()
        ends = list(itertools.accumulate(relus.counts, initial=0))
        self.places = [slice(*pair) for pair in itertools.pairwise(ends)]  # of each node
        self.units = 16 * (len(self.low) + 64) * EPS  # of sums over all ReLUs
        # output at the centre from lines through 0, rounded outward
        self.doubt = 16 * EPS * (relus.centre.abs() + relus.value.abs())
        self.linear = relus.inputs.linear  # of the branches that were bounded last, on the input
        self._find_chords()

    def _find_chords(self) -> None:
        """The chord of every ReLU, as high as both of its ends need."""
        low, high, left = self.low, self.high, self.relus.left
        chord = (high - left * low) / (high - low).clamp(min=1e-300)
        self.chord = torch.minimum(torch.maximum(chord, left), torch.ones_like(left))
        over = torch.maximum((left - self.chord) * low, (1 - self.chord) * high).clamp(min=0.0)
        self.over = over * (1 + 16 * EPS)

    @property
    def known(self) -> torch.Tensor:
        """Signs that hold on the whole set, (1, ReLUs)."""
        return ((self.low >= 0).to(self.low) - (self.high <= 0).to(self.low))[None]

    def tighten(self, slopes: torch.Tensor, steps: int) -> None:
        """Narrow the intervals of the ReLUs after the first node, by slopes of their own."""
        relus = self.relus
        for at, count in list(zip(self.places, relus.counts, strict=True))[1:]:
            for sign, ends in ((1.0, self.low), (-1.0, self.high)):
                of = relus.inputs
                of = Functions(
                    sign * of.linear[at], sign * of.outer[at], of.inner[at], sign * of.shift[at],
                    of.error[at],
                )  # fmt: skip
                many = Branches(
                    self.known.repeat(count, 1), slopes.repeat(count, 1),
                    slopes.new_zeros(count, len(self.low)), slopes.new_full((count,), -torch.inf),
                )  # fmt: skip
                self.improve(of, many, steps, goal=torch.inf)
                found = relus.centre[at] + sign * (many.lower - self.doubt[at])
                narrower = torch.maximum if sign > 0 else torch.minimum
                ends[at] = narrower(ends[at], found)
            self._find_chords()

    def bound(self, of: Functions, many: Branches) -> tuple[torch.Tensor, torch.Tensor]:
        """Lower bound of one function on each branch, and its coefficients on the outputs."""
        relus = self.relus
        parts = []
        change: list[torch.Tensor] = []  # of the inner coefficients, of the last nodes first
        places = self.places
        found = of.shift - of.error
        for at in reversed(places):
            outer = of.outer[:, at].expand(len(many), -1)
            for later, more in zip(reversed(places), change, strict=False):
                outer = outer + more @ relus.inputs.outer[later, at]
            inner, held = self._hinge(outer, many, at)
            change.append(inner - of.inner[:, at])
            found = found + held.sum(dim=1)
            parts.append(outer)
        if not parts:
            self.linear = of.linear
            return found - relus.engine.inputs.reach(of.linear), of.outer
        moved = torch.cat(change[::-1], dim=1)
        inputs = relus.inputs
        linear = of.linear + moved @ inputs.linear
        found = found + moved @ inputs.shift - moved.abs() @ inputs.error
        found = found - relus.engine.inputs.reach(linear)
        self.linear = linear.detach()
        return found, torch.cat(parts[::-1], dim=1)

    def _hinge(
        self, outer: torch.Tensor, many: Branches, at: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Coefficients on the inputs of ReLUs, and the least of outer·output − inner·input.

        The output lies above a line of any slope between both sides through 0, and below the
        chord; where the sign is known it is a line. Then sign·input ≥ 0 times a multiplier may be
        subtracted.
        """
        relus = self.relus
        signs, middle = many.signs[:, at], relus.centre[at]
        known = torch.where(signs > 0, torch.ones_like(outer), relus.left[at])
        free = signs == 0
        below = torch.where(free, many.slopes[:, at], known)
        above = torch.where(free, self.chord[at], known)
        height = torch.where(free, self.over[at], 0.0)
        up, down = outer.clamp(min=0.0), outer.clamp(max=0.0)
        push = many.multipliers[:, at] * signs
        lines = up * below + down * above
        held = lines * middle - outer * relus.value[at] + down * height - push * middle
        held = held - outer.abs() * self.doubt[at] - push.abs() * (self.units * middle.abs())
        return lines - push, held

    def improve(self, of: Functions, many: Branches, steps: int, goal: float = 0.0) -> None:
        """Raise the bounds by so many gradient steps, or until they are above the goal."""
        leaves = [Leaf(many, "slopes", (self.relus.left, 1.0), SLOPE)]
        if bool(many.signs.any()):
            leaves.append(Leaf(many, "multipliers", (0.0, torch.inf), MULTIPLIER))
        found = ascend(lambda: self.bound(of, many)[0], leaves, steps, goal)
        many.lower = torch.maximum(many.lower, found)

    @torch.no_grad()
    def look(self, of: Functions, many: Branches) -> tuple[torch.Tensor, torch.Tensor]:
        """Bounds as they are, and the coefficients on the outputs."""
        return self.bound(of, many)

    def gains(self, many: Branches, outer: torch.Tensor) -> torch.Tensor:
        """About what a split of each ReLU would gain, (branches, ReLUs); −1 where it is split.

        A negative coefficient reads the chord, which is furthest off at 0, a positive one the line
        below, which is furthest off at an end.
        """
        relus = self.relus
        line = torch.minimum((1 - many.slopes) * self.high, (many.slopes - relus.left) * -self.low)
        line = torch.maximum(line, self.over / 2)
        gain = -outer.clamp(max=0.0) * self.over + outer.clamp(min=0.0) * line
        return torch.where(many.signs == 0, gain, -1.0)
