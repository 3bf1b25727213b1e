"""Operations that choose, average or join tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.operations.places import Places
from taut.networks.propagation.node import Node, Pulled
from taut.networks.propagation.rows import Rows

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class SelectNode(Node):
    """Some tokens of another node."""

    def __init__(self, x: Node, chosen: torch.Tensor) -> None:
        self.chosen = chosen
        super().__init__(x)

    def value(self) -> torch.Tensor:
        """The chosen tokens."""
        return self.parents[0].centre[self.chosen]

    def needs(self) -> tuple[torch.Tensor, ...]:
        """The chosen tokens."""
        found = torch.zeros(self.parents[0].tokens, dtype=torch.bool)
        found[self.chosen[self.needed]] = True
        return (found,)

    def prepare(self, engine: Engine) -> None:
        """As they are."""
        self.sizes = self.grown(self.parents[0].sizes)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """The steps of the chosen tokens."""
        return steps[0][:, self.chosen]

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """The sizes of the chosen tokens."""
        return sizes[0][self.chosen]

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The rows in their places."""
        if rows.token is not None:
            return Pulled((Rows(rows.values, self.chosen[rows.token]),))
        if len(self.chosen) == 1:
            return Pulled((Rows(rows.values, self.chosen.expand(len(rows))),))
        found = rows.values.new_zeros(len(rows), self.parents[0].tokens, self.width)
        found[:, self.chosen] = rows.values
        return Pulled((Rows(found),))


class PrependNode(Node):
    """Fixed tokens, such as that of the class, before the others."""

    def __init__(self, x: Node, fixed: torch.Tensor) -> None:
        self.fixed, self.many = fixed, len(fixed)
        super().__init__(x)

    def value(self) -> torch.Tensor:
        """The fixed tokens and the others."""
        return torch.cat((self.fixed, self.parents[0].centre))

    def needs(self) -> tuple[torch.Tensor, ...]:
        """All but the fixed tokens."""
        return (self.needed[self.many :],)

    def prepare(self, engine: Engine) -> None:
        """Fixed tokens do not move; they may be sums that were rounded."""
        (x,) = self.parents
        self.sizes = self.grown(x.sizes)
        self.local = torch.zeros_like(self.sizes)
        self.local[: self.many] = engine.unit * self.centre[: self.many].norm(dim=-1)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """Steps of 0 before the others."""
        (step,) = steps
        return torch.cat((step.new_zeros(len(step), self.many, self.width), step), dim=1)

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """Sizes of 0 before the others."""
        return torch.cat((sizes[0].new_zeros(self.many), sizes[0]))

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The rows of what follows."""
        if rows.token is None:
            return Pulled((Rows(rows.values[:, self.many :]),))
        real = rows.token >= self.many
        values = torch.where(real[:, None, None], rows.values, 0.0)
        return Pulled((Rows(values, (rows.token - self.many).clamp(min=0)),))


class MeanNode(Node):
    """The mean of all tokens. Rounding: a sum of so many terms, and a division."""

    def value(self) -> torch.Tensor:
        """The mean."""
        return self.parents[0].centre.mean(dim=0, keepdim=True)

    def needs(self) -> tuple[torch.Tensor, ...]:
        """All tokens."""
        return (torch.ones(self.parents[0].tokens, dtype=torch.bool),)

    def prepare(self, engine: Engine) -> None:
        """The mean of the sizes."""
        (x,) = self.parents
        self.sizes = self.grown(x.sizes)
        self.local = engine.unit * (x.tokens + 2) * x.longest.amax(dim=0, keepdim=True)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """The mean of the steps."""
        return steps[0].mean(dim=1, keepdim=True)

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """The mean of the sizes."""
        return sizes[0].mean(dim=0, keepdim=True) * (1 + 1e-12)

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """A share of the row for every token."""
        many = self.parents[0].tokens
        values = (rows.dense(1) / many).expand(-1, many, -1)
        return Pulled((Rows(values),), rounding=2 * EPS * rows.weighed(self.sizes))


class BesideNode(Node):
    """Two nodes of equally many tokens, joined along their width."""

    def value(self) -> torch.Tensor:
        """Both."""
        return torch.cat([parent.centre for parent in self.parents], dim=-1)

    def prepare(self, engine: Engine) -> None:
        """Squares add up."""
        x, y = self.parents
        self.sizes = self.grown(x.sizes, y.sizes)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """Both."""
        return torch.cat(steps, dim=-1)

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """Squares add up."""
        return torch.hypot(*sizes) * (1 + 1e-12)

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The row of each."""
        left, right = torch.split(rows.values, [parent.width for parent in self.parents], dim=-1)
        return Pulled((rows.but(left), rows.but(right)))


class RearrangeNode(Node):
    """Entries of another node in other places; a zero where the place is −1."""

    def __init__(self, x: Node, places: torch.Tensor) -> None:
        self.places = Places(places, x.tokens, x.width)
        super().__init__(x)
        index = self.places.index.to(self.centre.device)
        self._from = torch.where(index < 0, x.centre.numel(), index)  # zeros read one entry more
        many = self.places.reads.sum(dim=1)
        self._single = bool((many == 1).all())

    def value(self) -> torch.Tensor:
        """The entries in their new places."""
        return self.places.applied(self.parents[0].centre.flatten())

    def needs(self) -> tuple[torch.Tensor, ...]:
        """The tokens that the needed ones read."""
        return (self.places.reads[self.needed].any(dim=0),)

    def prepare(self, engine: Engine) -> None:
        """The squares of all tokens that are read, as often as an entry is read."""
        self.sizes = self.grown(self.parents[0].sizes) + 1e-150  # where squares underflow

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """The entries of every step in their new places."""
        return self.places.applied(steps[0].flatten(1))

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """The squares of all tokens that are read, as often as an entry is read."""
        reads = self.places.reads.to(sizes[0])
        return (reads @ sizes[0].square() * self.places.within).sqrt() * (1 + 1e-12)

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """Every coefficient at the entry that it came from."""
        (x,) = self.parents
        rounding = EPS * (self.places.most - 1) * rows.weighed(self.sizes)
        if rows.token is not None and self._single:
            token = self.places.reads.int().argmax(dim=1).to(rows.token.device)[rows.token]
            index = self._from[rows.token]
            index = torch.where(index == x.centre.numel(), x.width, index % x.width)
            found = rows.values.new_zeros(len(rows), x.width + 1)
            found = found.scatter_add(1, index, rows.values[:, 0])
            return Pulled((Rows(found[:, None, :-1], token),), rounding=rounding)
        found = rows.values.new_zeros(len(rows), x.centre.numel() + 1)
        if rows.token is None:
            found = found.index_add(1, self._from.flatten(), rows.values.flatten(1))
        else:
            found = found.scatter_add(1, self._from[rows.token], rows.values[:, 0])
        return Pulled((Rows(found[:, :-1].reshape(-1, *x.centre.shape)),), rounding=rounding)
