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
from taut.networks.propagation.boxes import find_box
from taut.networks.propagation.checkpoint import Checkpoint, at_input, forks, passages
from taut.networks.propagation.error_sources import ErrorSources
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.needed_tokens import find_needed
from taut.networks.propagation.node import Node, UnboundedError
from taut.networks.propagation.reached import Reached, Trail, joined
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.source import sharpened
from taut.networks.propagation.value_factors import Entries, ValueFactors

Starts = list[tuple[Node, Rows]]
Known = dict[int, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]
UNDERFLOW = 1e-30  # the same for a network as executed in float32
MEMORY = 3e6  # numbers in the rows that are carried at a time
LARGEST_MATRIX = 1e8  # numbers in the ellipsoid of a checkpoint
WORK = 2e10  # multiplications for which rows are carried beyond the last checkpoint
LARGE = 2e11  # multiplications of a network beyond which checkpoints are used


class OutOfTimeError(Exception):
    """The time limit was reached before the bound was found."""


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
    checkpoints
        Whether rows may end at checkpoints; None for large networks only.
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
        checkpoints: bool | None = None,
        quick: bool = False,
    ) -> None:
        self.nodes, self.inputs, self.deadline, self.quick = nodes, inputs, deadline, quick
        self.unit = EPS + eps
        self.entries = inputs.columns
        self.kept: dict[int, Entries] = {}  # entries of nodes as linear functions of the input
        self._factors: dict[tuple[int, int], ValueFactors] = {}
        self.checkpoint: tuple[int, Checkpoint] | None = None
        self._sources = ErrorSources(self)
        self._work = [0.0]
        for node in nodes[1:]:
            self._work.append(self._work[-1] + node.work)
        whole = sum(node.centre.numel() * self._work[node.index] for node in nodes)
        self.ellipsoids = whole > LARGE if checkpoints is None else checkpoints
        self._passages = passages(nodes) if self.ellipsoids else set()
        forked = forks(nodes) & self._passages - {0}
        find_needed(nodes)
        for node in nodes:
            node.centre = node.value()
            if bool(node.needed.any()):
                self._prepare(node, UNDERFLOW if eps else 0.0)
                if node.index in forked:
                    self.box(node, factors=True)
                if node.index == 0 and self.whole(node):
                    self.checkpoint = 0, at_input(inputs, node)
            progress(node.index + 1, len(nodes))

    def _prepare(self, node: Node, underflow: float) -> None:
        node.prepare(self)
        node.local = node.local + underflow
        node.sizes = node.sizes + node.local  # constants of modules hold only that far
        for parent in node.parents:
            parent.frozen = True

    def carry(
        self,
        starts: Starts,
        *,
        lower: bool = False,
        keep: bool = False,
        trail: bool = False,
        ends: bool = False,
    ) -> Reached:
        """Carry rows to the input or to a checkpoint, as many at a time as the memory allows.

        Parameters
        ----------
        lower
            Whether only the lower side counts.
        keep
            Whether to keep the linear functions of the input.
        trail
            Whether to end at the last checkpoint and to keep a trail.
        ends
            Whether the trail is all that is asked for, so that the rows on the input are not.
        """
        count = len(starts[0][1])
        first = min(node.index for node, _ in starts)
        widest = max(node.width for node in self.nodes[: first + 1])
        tokens = max(node.tokens for node in self.nodes)
        widest = max(widest, -(-self.entries // tokens))  # what is left at the input
        chunk = max(16, int(MEMORY / (tokens * widest)))
        stop = self._stop(first, float("inf") if trail else count)
        parts = []
        for begin in range(0, count, chunk):
            if time.monotonic() > self.deadline:
                raise OutOfTimeError
            part = [(node, rows.part(begin, begin + chunk)) for node, rows in starts]
            parts.append(self._carry(part, stop, lower=lower, keep=keep, trail=trail, ends=ends))
        return joined(parts)

    def _stop(self, first: int, count: float) -> int:
        """Where rows end: as near to the input as their number allows."""
        last = 0 if self.checkpoint is None else self.checkpoint[0]
        return last if last <= first and count * self._work[first] > WORK else 0

    def _carry(
        self, starts: Starts, stop: int, *, lower: bool, keep: bool, trail: bool, ends: bool
    ) -> Reached:
        pending: dict[int, Rows] = {}
        known: Known = {}
        for node, rows in starts:
            _enter(pending, node, rows)
        like = starts[0][1].values
        found = Reached(None, like.new_zeros(len(like)))
        if trail:
            found.trail = Trail(stop, found.shift)
        while pending:
            index = max(pending)
            rows, node = pending.pop(index), self.nodes[index]
            if index == stop:
                if found.trail is not None:
                    found.trail.ends = rows
                if not ends:
                    before = self.checkpoint if stop else None
                    found.end(rows, self.inputs, self.nodes[0].tokens, before)
                break
            if node.offset is not None:
                found.add_offset(rows, node.offset)
            pulled = node.pull(rows, lower=lower)
            if self.ellipsoids:
                self._meet(found, node, rows, known)
                if index in known and not lower:
                    pulled = sharpened(pulled, known[index])
            found.add(pulled, rows, node)
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

    def _meet(self, found: Reached, node: Node, rows: Rows, known: Known) -> None:
        """Enter what a node adds to rows, or what an activation does that it is the reader of."""
        for each in (node, *node.parents):
            reader = self._sources.readers.get(each.index, each)
            source = self._sources.of(each) if reader is node else None
            if source is None:
                continue
            around = known[each.index] = source.interval(rows)
            if found.trail is not None:
                found.trail.parts[each.index] = (rows, source)
                found.trail.drift += around[0]
                found.rounding += around[2]
        # rows on a trail never begin between an activation and its reader
        assert found.trail is None or node.index not in self._sources.readers or node.index in known

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
        if node.box is None or (factors and node.index not in self.kept):
            if bool(node.needed.any()):
                find_box(self, node, factors=factors)
            else:
                node.box = torch.zeros_like(node.centre)
        assert node.box is not None
        return node.box

    def entry_rows(self, node: Node, tokens: torch.Tensor) -> tuple[Node, Rows, torch.Tensor]:
        """Rows of every entry; on the node itself if it is where the error of another is given."""
        found = node.entry_rows(tokens)
        return Node.entry_rows(node, tokens) if found[0].index in self._sources.readers else found

    def whole(self, node: Node) -> bool:
        """Whether rows may end at a node: every path passes it, and all of it is needed."""
        small = node.centre.numel() ** 2 <= LARGEST_MATRIX
        return small and node.index in self._passages and bool(node.needed.all())

    def factors(self, node: Node, heads: int) -> ValueFactors:
        """Contracted radii of the entries of a node, whose box was found with factors."""
        key = (node.index, heads)
        if key not in self._factors:
            assert node.box is not None
            entries = self.kept[node.index]
            self._factors[key] = ValueFactors(self.inputs, node.box, entries, heads)
        return self._factors[key]


def _enter(pending: dict[int, Rows], node: Node, rows: Rows) -> None:
    old = pending.get(node.index)
    pending[node.index] = rows if old is None else old.plus(rows, node.tokens)
