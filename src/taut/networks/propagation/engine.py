"""Engine: carry rows backwards through the recorded network (theorem affine-rows).

For a row A on the output of an operation N the value A·N(x) is A·L(x) + shift ± error, where the
error is found after the operation was contracted with A. A·L is a row on the inputs of N; at the
end stands a row on the input of the network, whose largest value the dual norm gives. What an
operation needs to know of its inputs (intervals, norms) is found in the same way, one operation
after the other.

All values are deviations from the centres of the nodes. Rounding of an operation is a deviation,
too: its own (:attr:`Node.local`) is carried backwards like any other error, so that the bound
holds for the network in exact arithmetic, or as executed with a given precision.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.input_set import InputRows, InputSet
from taut.networks.propagation.node import Node, UnboundedError
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.value_factors import Entries, ValueFactors

Starts = list[tuple[Node, Rows]]
TINY = 1e-100  # more than all that underflows
UNDERFLOW = 1e-30  # the same for a network as executed in float32
LARGEST_TABLE = 1.5e8  # numbers in the linear functions that are kept of a node
MEMORY = 6e6  # numbers in the rows that are carried at a time


class OutOfTimeError(Exception):
    """The time limit was reached before the bound was found."""


class Reached:
    """Rows that were carried to the input: the value of each is reach ± error around a shift."""

    def __init__(self, linear: InputRows | None, reach: torch.Tensor) -> None:
        self.linear = linear
        self.reach = reach
        self.shift = torch.zeros_like(reach)
        self.error = torch.zeros_like(reach)
        self.slack: dict[int, torch.Tensor] = {}
        self.rounding = torch.zeros_like(reach)

    @property
    def half(self) -> torch.Tensor:
        """Half of the width of the interval."""
        return (self.reach + self.error + self.rounding) * (1 + 1e-12) + TINY


class Engine:
    """Bounds of a recorded network on a set of inputs.

    Parameters
    ----------
    nodes
        The operations in order; the first is the input.
    inputs
        Where the input can be.
    eps
        Precision of the network as executed; 0 for exact arithmetic.
    progress
        Called with the number of operations that are bounded, and of all.
    deadline
        ``time.monotonic()`` at which to give up.
    quick
        Whether to leave out, on the way, what takes long and rarely pays for deep networks in l∞:
        joint bounds of scores, and contractions of many rows with all entries of the input.
    """

    def __init__(
        self,
        nodes: list[Node],
        inputs: InputSet,
        eps: float = 0.0,
        progress: Callable[[int, int], object] = lambda done, all_: None,
        deadline: float = float("inf"),
        *,
        quick: bool = False,
    ) -> None:
        self.nodes, self.inputs, self.deadline, self.quick = nodes, inputs, deadline, quick
        self.unit = EPS + eps
        self.entries = inputs.columns
        self._entries: dict[int, Entries] = {}
        self._factors: dict[tuple[int, int], ValueFactors] = {}
        find_needed(nodes)
        for node in nodes:
            node.centre = node.value()
            if bool(node.needed.any()):
                self._prepare(node, UNDERFLOW if eps else 0.0)
            progress(node.index + 1, len(nodes))

    def _prepare(self, node: Node, underflow: float) -> None:
        node.prepare(self)
        node.local = node.local + underflow
        node.sizes = node.sizes + node.local  # constants of modules hold only that far
        for parent in node.parents:
            parent.frozen = True

    def carry(self, starts: Starts, *, lower: bool = False, keep: bool = False) -> Reached:
        """Carry rows to the input, as many at a time as the memory allows."""
        count = len(starts[0][1])
        widest = max(node.width for node in self.nodes[: starts[0][0].index + 1])
        tokens = max(node.tokens for node in self.nodes)
        widest = max(widest, -(-self.entries // tokens))  # what is left at the input
        chunk = max(16, int(MEMORY / (tokens * widest)))
        parts = []
        for begin in range(0, count, chunk):
            if time.monotonic() > self.deadline:
                raise OutOfTimeError
            part = [(node, _part(rows, begin, begin + chunk)) for node, rows in starts]
            parts.append(self._carry(part, lower=lower, keep=keep))
        return parts[0] if len(parts) == 1 else _joined(parts)

    def _carry(self, starts: Starts, *, lower: bool, keep: bool) -> Reached:
        pending: dict[int, Rows] = {}
        for node, rows in starts:
            _enter(pending, node, rows)
        like = starts[0][1].values
        found = Reached(None, like.new_zeros(len(like)))
        while pending:
            index = max(pending)
            rows, node = pending.pop(index), self.nodes[index]
            if index == 0:
                found.linear = self.inputs.entries(rows)
                found.reach = self.inputs.reach(found.linear.values)
                break
            if node.offset is not None:
                found.shift += rows.on(node.offset)
                found.rounding += rows.weighed(node.offset.norm(dim=-1)) * (node.width + 4) * EPS
            pulled = node.pull(rows, lower=lower)
            found.shift += pulled.shift
            found.error += pulled.error
            found.rounding += pulled.rounding + rows.weighed(node.local)
            if isinstance(pulled.error, torch.Tensor):
                found.slack[index] = pulled.error
            for parent, more in zip(node.parents, pulled.rows, strict=True):
                if more is not None:
                    _enter(pending, parent, more)
        if not keep:
            found.linear = None
        elif found.linear is None:
            found.linear = self.inputs.entries(
                Rows(like.new_zeros(len(like), self.nodes[0].tokens, self.nodes[0].width))
            )
        if not bool(found.half.isfinite().all()):
            raise UnboundedError
        return found

    def interval(self, starts: Starts) -> tuple[torch.Tensor, torch.Tensor]:
        """Range of each row, as a deviation from its value at the centres."""
        found = self.carry(starts)
        low, high = found.shift - found.half, found.shift + found.half
        if any(node.signed for node, _ in starts):
            one_side = self.carry(starts, lower=True)
            low = torch.maximum(low, one_side.shift - one_side.half)
            minus = [(node, rows.but(-rows.values)) for node, rows in starts]
            one_side = self.carry(minus, lower=True)
            high = torch.minimum(high, one_side.half - one_side.shift)
        return low, high

    def box(self, node: Node, *, factors: bool = False) -> torch.Tensor:
        """Radius of every entry of a node around its centre, which moves to the middle.

        Tokens that nothing depends on have no radius. ``factors`` keeps the linear functions.
        """
        if node.box is None or (factors and node.index not in self._entries):
            if bool(node.needed.any()):
                self._find_box(node, factors)
            else:
                node.box = torch.zeros_like(node.centre)
        assert node.box is not None
        return node.box

    def _find_box(self, node: Node, factors: bool) -> None:
        index = node.needed.nonzero()[:, 0]
        begin, rows, more = node.entry_rows(index)
        keep = factors and len(rows) * self.entries < LARGEST_TABLE
        found = self.carry([(begin, rows)], keep=keep)
        found.rounding += more
        low, high = found.shift - found.half, found.shift + found.half
        shape = (len(index), node.width)
        if node.signed and not factors:
            plus = self.carry([(begin, rows)], lower=True)
            minus = self.carry([(begin, rows.but(-rows.values))], lower=True)
            low = torch.maximum(low, plus.shift - plus.half - more)
            high = torch.minimum(high, minus.half - minus.shift + more)
        middle, radius, errors = (torch.zeros_like(node.centre) for _ in range(3))
        half = (high - low) / 2 * (1 + 1e-12)
        if node.frozen:
            half = torch.maximum(high, -low)
        else:
            middle[index] = ((low + high) / 2).reshape(shape)
        radius[index] = half.reshape(shape)
        node.recentre(middle, radius)
        if factors:
            rest = found.half
            if found.linear is not None:
                rest = (found.error + found.rounding) * (1 + 1e-12) + TINY
            # the linear function is 0 at the shift, which is the middle unless that is frozen
            errors[index] = (
                (rest + found.shift.abs() * (1 + 1e-12)).reshape(shape)
                if node.frozen
                else rest.reshape(shape)
            )
            errors[index] += 16 * EPS * node.centre.abs()[index]
            linear = found.linear or InputRows(low.new_zeros(len(low), 0), None)
            self._entries[node.index] = Entries(linear, errors, node.needed)

    def factors(self, node: Node, heads: int) -> ValueFactors:
        """Contracted radii of the entries of a node, whose box was found with factors."""
        key = (node.index, heads)
        if key not in self._factors:
            assert node.box is not None
            entries = self._entries[node.index]
            self._factors[key] = ValueFactors(self.inputs, node.box, entries, heads)
        return self._factors[key]


def find_needed(nodes: list[Node]) -> None:
    """Mark the tokens of every node that the last one depends on."""
    nodes[-1].needed[:] = True
    for node in reversed(nodes):
        for parent, needed in zip(node.parents, node.needs(), strict=True):
            parent.needed |= needed


def _enter(pending: dict[int, Rows], node: Node, rows: Rows) -> None:
    old = pending.get(node.index)
    pending[node.index] = rows if old is None else old.plus(rows, node.tokens)


def _part(rows: Rows, begin: int, end: int) -> Rows:
    token = None if rows.token is None else rows.token[begin:end]
    return Rows(rows.values[begin:end], token)


def _joined(parts: list[Reached]) -> Reached:
    """One result of several chunks."""
    whole = Reached(None, torch.cat([part.reach for part in parts]))
    for name in ("shift", "error", "rounding"):
        setattr(whole, name, torch.cat([getattr(part, name) for part in parts]))
    for index in parts[0].slack:
        whole.slack[index] = torch.cat([part.slack[index] for part in parts])
    if all(part.linear is not None for part in parts):
        linear = [part.linear for part in parts if part.linear is not None]
        tokens = [each.token for each in linear]
        single = None if tokens[0] is None else torch.cat([t for t in tokens if t is not None])
        whole.linear = InputRows(torch.cat([each.values for each in linear]), single)
    return whole
