"""MarginSearch: lower bounds of the margins of one input within radii that are tried."""

from __future__ import annotations

import math

import torch

from taut._base.rounding import EPS
from taut.networks.ellipsoids.forward import Forward, is_smooth
from taut.networks.propagation.engine import Engine, OutOfTimeError
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.node import Node, UnboundedError
from taut.networks.propagation.radius_search import largest_radius
from taut.networks.propagation.record import record
from taut.networks.propagation.request import Request
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.slopes import Slopes, lower_bounds
from taut.networks.propagation.targets import margins
from taut.networks.question import Question

NEAR = 1e-9  # radius at which the relaxation shows the derivative
BEYOND = 0.05  # how much larger a radius must be for rows to go on from that of ellipsoids


class MarginSearch:
    """Margins of one input within radii that are tried."""

    def __init__(
        self, question: Question, request: Request, sample: int, label: int, eps: float,
        deadline: float, optimise: int,
    ) -> None:  # fmt: skip
        self.question, self.request, self.sample, self.label = question, request, sample, label
        self.eps, self.deadline, self.late = eps, deadline, False
        self.optimise = optimise
        self.slopes: Slopes = {}
        # the set of inputs has to fit a ball in l2
        self.smooth = request.norm <= 2 and is_smooth(self._tape(NEAR)[0])

    def largest(self, lead: float, guess: float, steps: int, tolerance: float) -> float:
        """The largest radius found; rows go on from where ellipsoids end, if they can."""
        begin = 0.0
        if self.smooth:
            begin = largest_radius(self.margin_by_ellipsoids, lead, guess, steps, tolerance)
            guess = begin * (1 + BEYOND) if begin > 0 else guess
            if begin > 0 and not self.margin_by_rows(guess) > 0:
                return begin
        return max(begin, largest_radius(self.margin_by_rows, lead, guess, steps, tolerance))

    def margin_by_ellipsoids(self, radius: float) -> float:
        """Lower bound of the smallest margin within a radius, by what moves together."""
        tape, inputs, rows = self._tape(radius)
        try:
            far = Forward(tape, inputs, self.eps, self.deadline).radius(rows)
        except UnboundedError:
            return -math.inf
        except OutOfTimeError:
            self.late = True
            return -math.inf
        return float((_values(rows, tape) - far).min())

    def margin_by_rows(self, radius: float) -> float:
        """Lower bound of the smallest margin within a radius; −inf if there is none."""
        found = self._engine(radius)
        if found is None:
            return -math.inf
        engine, rows = found
        value = _values(rows, engine.nodes)
        try:
            low = value + lower_bounds(engine, Rows(rows), 0)
            if self.optimise and not bool((low > 0).all()):
                low = value + lower_bounds(engine, Rows(rows), self.optimise, self.slopes)
        except UnboundedError:
            return -math.inf
        except OutOfTimeError:
            self.late = True
            return -math.inf
        return float(low.min())

    def first_order(self, ahead: torch.Tensor) -> float:
        """Smallest quotient of margin and dual norm of its derivative.

        The derivative is that of the relaxation within a tiny radius. NaN where there is none, and
        where the network is flat, which says nothing of how far it is.
        """
        found = self._engine(NEAR)
        if found is None:
            return math.nan
        engine, rows = found
        try:
            slopes = engine.carry([(engine.nodes[-1], Rows(rows))]).reach / NEAR
        except UnboundedError:
            return math.nan
        except OutOfTimeError:
            self.late = True
            return math.nan
        smallest = float(torch.where(slopes > 0, ahead / slopes, torch.inf).min())
        return max(smallest, 0.0) if smallest < math.inf else math.nan

    def _engine(self, radius: float) -> tuple[Engine, torch.Tensor] | None:
        """All operations bounded within a radius, and the margins as rows on the output."""
        tape, inputs, rows = self._tape(radius)
        try:
            engine = Engine(tape, inputs, self.eps, deadline=self.deadline)
        except UnboundedError:
            return None
        except OutOfTimeError:
            self.late = True
            return None
        return engine, rows

    def _tape(self, radius: float) -> tuple[list[Node], InputSet, torch.Tensor]:
        """The operations, the set of inputs, and the margins as rows on the output."""
        scale = self.request.scale[self.sample]
        tape = record(self.question, self.sample, scale.device)
        rows = margins([self.label], tape[-1].width).to(scale)[0][:, None]
        return tape, InputSet(radius, self.request.norm, scale), rows


def _values(rows: torch.Tensor, nodes: list[Node]) -> torch.Tensor:
    """Rows at the centre of the last node, rounded down."""
    terms = (rows * nodes[-1].centre).flatten(1)
    return terms.sum(dim=1) - terms.abs().sum(dim=1) * (8 * EPS * terms.shape[1])
