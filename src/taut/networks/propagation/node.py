"""Node: one operation of a network, as it was recorded, and what is known of its output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.rows import Rows, unit_rows

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class RegionNeededError(Exception):
    """A rule asked for what only a region has: its module falls back to its constant."""


class UnboundedError(Exception):
    """A relaxation is infinite: nothing is known within this radius."""


@dataclass(frozen=True)
class Pulled:
    """What rows on the output of an operation are on its inputs.

    ``row·output`` lies within ``error`` of ``Σ rows·input + shift``, all as deviations from the
    centres; of one-sided rows only the lower side holds.

    Attributes
    ----------
    rows
        For each parent, or None where it is not read.
    shift, error, rounding
        One number for each row: a known part, the relaxation, and rounding.
    """

    rows: tuple[Rows | None, ...]
    shift: torch.Tensor | float = 0.0
    error: torch.Tensor | float = 0.0
    rounding: torch.Tensor | float = 0.0


class Node:
    """An operation. Its value is ``centre`` and a deviation that depends on the input.

    Attributes
    ----------
    parents
        The operations that it reads.
    centre
        A reference point, (tokens, width): where the given input leads, later moved to the middle
        of what is possible.
    kind, path
        What it is, and the module that it belongs to.
    image
        (channels, height, width) if it is one token made of pixels.
    needed
        The tokens that the output depends on.
    offset
        What the operation makes of its parents' centres, minus the own centre, where they differ.
    box
        How far each entry can be from the centre, (tokens, width), where it was found.
    sizes
        How far each token can be from the centre in l2, with the rounding of all operations so far.
    local
        What rounding of this operation alone adds to each token, in l2.
    signed
        Whether rows from below are tighter somewhere before it.
    frozen
        Whether something relies on the centre, which then stays where it is.
    """

    kind = "linear"
    assumed = False  # whether its rounding is taken on trust
    uneven = False  # whether rows from below are tighter than those for both sides

    def __init__(self, *parents: Node) -> None:
        self.parents = parents
        self.centre = centre = self.value()
        self.path = ""
        self.index = -1
        self.image: tuple[int, ...] = ()
        self.needed = torch.zeros(len(centre), dtype=torch.bool)
        self.offset: torch.Tensor | None = None
        self.box: torch.Tensor | None = None
        self.sizes = centre.new_zeros(len(centre))
        self.local = centre.new_zeros(len(centre))
        self.signed: bool = any(parent.signed or parent.uneven for parent in parents)
        self.frozen = False

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return self.centre.shape[0]

    @property
    def width(self) -> int:
        """Their width."""
        return self.centre.shape[1]

    @property
    def work(self) -> float:
        """About how many multiplications it takes to pull a row back."""
        return 8.0 * self.centre.numel()

    @property
    def longest(self) -> torch.Tensor:
        """No token is longer than this."""
        found: torch.Tensor = self.centre.norm(dim=-1) * (1 + 1e-12) + self.sizes
        return found

    def value(self) -> torch.Tensor:
        """What the operation makes of its parents' centres."""
        raise NotImplementedError

    def needs(self) -> tuple[torch.Tensor, ...]:
        """Which tokens of each parent the needed tokens depend on: the same, unless it mixes."""
        return tuple(self.needed for _ in self.parents)

    def prepare(self, engine: Engine) -> None:
        """Find what bounds of the output need, once the parents are known.

        Whoever moves a parent's centre by asking for its box computes the own centre again.
        """
        raise NotImplementedError

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """Rows on the output as rows on the inputs; ``lower`` asks for bounds from below only."""
        raise NotImplementedError

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """What steps of the parents, (count, tokens, width), are on the output, if it is linear."""
        raise NotImplementedError

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """How long each token can be if those of the parents are so long, if it is linear."""
        raise NotImplementedError

    def entry_rows(self, tokens: torch.Tensor) -> tuple[Node, Rows, torch.Tensor]:
        """Rows of every entry of these tokens, where they begin, and an error of each."""
        rows = unit_rows(self.width, tokens, self.centre)
        return self, rows, self.centre.new_zeros(len(rows))

    def recentre(self, middle: torch.Tensor, radius: torch.Tensor) -> None:
        """Enter the interval of every entry: ``middle`` off the centre, and its half-width."""
        moved = self.centre + middle
        offset = self.centre - moved
        if self.offset is not None:
            offset = self.offset + offset
        self.offset = offset if bool(offset.any()) else None
        # both sums are rounded
        slack = 4 * EPS * (self.centre.abs() + moved.abs())
        self.box = radius + slack
        lost = slack.norm(dim=-1) * (1 + 1e-12)
        self.local = self.local + lost
        self.centre = moved
        self.sizes = torch.minimum(
            self.sizes + middle.norm(dim=-1) * (1 + 1e-9) + lost, box_size(self.box)
        )

    def _no_region(self) -> NoReturn:
        raise RegionNeededError

    def moved(self, *_: object, **__: object) -> NoReturn:
        """Refuse: only a region can be moved by a constant."""
        self._no_region()

    placed = but = in_units = moved

    @property
    def length(self) -> NoReturn:
        """Refuse: only a region has a length for all of its tokens."""
        self._no_region()

    radius = drift = lip = err = away = length


def box_size(box: torch.Tensor) -> torch.Tensor:
    """l2 norm of each token whose entries are at most these."""
    found: torch.Tensor = box.norm(dim=-1) * (1 + 1e-9)
    return found
