"""Condensed: a network near an input as a small one, of the ReLUs whose signs are undecided.

Everything else in the network is affine within an error. So the input tₙ of each undecided ReLU
deviates from its centre by Gₙ·δ + Σₘ Jₙₘ·(deviation of the output of an earlier one) + shiftₙ,
within an error eₙ, and so does the function that is to be bounded (theorem split-multipliers).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.choices import HingeStops
from taut.networks.propagation.engine import Engine, Starts
from taut.networks.propagation.input_set import InputRows
from taut.networks.propagation.pointwise_nodes import ActivationNode
from taut.networks.propagation.reached import Reached
from taut.networks.propagation.rows import Rows

TOGETHER = 16  # rows at a time, which an engine never carries in several parts
LARGEST = 1.5e8  # numbers in the table of all undecided ReLUs and all entries of the input


class TooManyError(Exception):
    """There are more undecided ReLUs than the memory allows."""


@dataclass
class Functions:
    """Functions of the input, δ being its deviation, in units of the set.

    f ≥ linear·δ + Σ outer·(output of a ReLU) − Σ inner·(its input) + shift − error, the outputs
    and inputs as deviations from their centres.

    Attributes
    ----------
    linear
        (functions, entries).
    outer, inner
        (functions, ReLUs).
    shift, error
        (functions,).
    """

    linear: torch.Tensor
    outer: torch.Tensor
    inner: torch.Tensor
    shift: torch.Tensor
    error: torch.Tensor


class Condensed:
    """The undecided ReLUs of a network that was bounded on a set of inputs.

    Attributes
    ----------
    hinges, counts
        Their nodes, in order, and how many each has.
    left, centre, value
        Slope left of 0, input and output at the centre, one number for each ReLU.
    low, high
        Between which its input lies on the whole set.
    inputs
        The inputs as functions, which hold from both sides.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.hinges = [n for n in engine.nodes if isinstance(n, ActivationNode) and len(n.bent)]
        self.counts = [len(node.bent) for node in self.hinges]
        many = sum(self.counts)
        if many * max(many, engine.entries) > LARGEST:
            raise TooManyError
        none = engine.nodes[0].centre.new_zeros(0)
        parts: list[list[torch.Tensor]] = [[], [], [], [], []]
        for node in self.hinges:
            (x,) = node.parents
            assert x.box is not None
            at = node.bent
            middle, box = x.centre.flatten()[at], x.box.flatten()[at]
            slack = 4 * EPS * (middle.abs() + box)
            found = (
                torch.full_like(middle, node.limits[0]), middle, node.centre.flatten()[at],
                middle - box - slack, middle + box + slack,
            )  # fmt: skip
            for part, values in zip(parts, found, strict=True):
                part.append(values)
        self.left, self.centre, self.value, self.low, self.high = (
            torch.cat([none, *part]) for part in parts
        )
        self.inputs = self._inputs(many)

    def _inputs(self, many: int) -> Functions:
        """The inputs of all undecided ReLUs, one node after the other."""
        entries = self.engine.inputs.columns
        zero = self.centre.new_zeros
        found = Functions(
            zero(many, entries), zero(many, many), zero(many, many), zero(many), zero(many)
        )
        begin = 0
        for node in self.hinges:
            (x,) = node.parents
            for places in _parts(node.bent, TOGETHER):
                count = len(places)
                rows = zero(count, x.tokens * x.width)
                rows[torch.arange(count), places] = 1.0
                start: Starts = [(x, Rows(rows.reshape(count, x.tokens, x.width)))]
                part = self._stopped(start, zero(count, many), lower=False)
                here = slice(begin, begin + count)
                found.linear[here], found.outer[here] = part.linear, part.outer
                found.shift[here], found.error[here] = part.shift, part.error
                begin += count
        return found

    def function(self, rows: torch.Tensor, inner: torch.Tensor) -> Functions:
        """Functions of the output (functions, tokens, width), from below.

        ``inner`` are the coefficients on the inputs of the ReLUs that the rows go on with: near
        those of a good bound nothing is lost.
        """
        return self._stopped([(self.engine.nodes[-1], Rows(rows))], inner, lower=True)

    def _stopped(self, start: Starts, inner: torch.Tensor, *, lower: bool) -> Functions:
        """Carry rows to the input, past stops at all undecided ReLUs."""
        begin = 0
        for node, count in zip(self.hinges, self.counts, strict=True):
            node.stops = HingeStops(node.bent, inner[:, begin : begin + count])
            begin += count
        try:
            found = self.engine.carry(start, lower=lower, keep=True)
            outer = [inner.new_zeros(len(inner), 0)]
            for node in self.hinges:
                assert node.stops is not None
                seen = node.stops.coefficients
                outer.append(torch.zeros_like(node.stops.onward) if seen is None else seen)
        finally:
            for node in self.hinges:
                node.stops = None
        linear = self._dense(found)
        together = torch.cat(outer, dim=1)
        error = (found.error + found.rounding) * (1 + 1e-9)
        return Functions(
            linear,
            together,
            inner,
            found.shift,
            error + self._rounding(linear, together, inner, found.shift),
        )

    def _dense(self, found: Reached) -> torch.Tensor:
        """The rows on all entries of the input."""
        assert found.linear is not None
        rows: InputRows = found.linear
        if rows.token is None or self.engine.nodes[0].tokens == 1:
            return rows.values
        width = rows.values.shape[1]
        full = rows.values.new_zeros(len(rows.values), self.engine.nodes[0].tokens, width)
        full[torch.arange(len(full)), rows.token] = rows.values
        return full[:, self.engine.inputs.moving].flatten(1)

    def _rounding(
        self, linear: torch.Tensor, outer: torch.Tensor, inner: torch.Tensor, shift: torch.Tensor
    ) -> torch.Tensor:
        """What adding multiples of these functions can err by, for a factor of 1.

        A bound is a sum over all functions of such multiples: every term of it errs by less than
        8 units for each function and entry, of its size.
        """
        far = torch.maximum(self.low.abs(), self.high.abs()) + self.centre.abs()
        size = linear.abs().sum(dim=1) + (outer.abs() + inner.abs()) @ (2 * far) + shift.abs()
        terms = linear.shape[1] + 2 * len(far) + 64
        return size * (16 * terms * EPS)


def _parts(places: torch.Tensor, size: int) -> list[torch.Tensor]:
    return [places[begin : begin + size] for begin in range(0, len(places), size)]
