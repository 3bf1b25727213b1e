"""Operations that choose, average or join tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
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


class PatchesNode(Node):
    """An image, one token of all its pixels, cut into patches that do not overlap."""

    def __init__(self, x: Node, size: tuple[int, int]) -> None:
        channels, height, width = x.image
        places = torch.arange(channels * height * width).reshape(1, channels, height, width)
        self.places = torch.nn.functional.unfold(places.double(), kernel_size=size, stride=size)[
            0
        ].mT.long()  # (patches, pixels of each)
        super().__init__(x)

    def value(self) -> torch.Tensor:
        """The pixels of every patch."""
        return self.parents[0].centre[0][self.places]

    def needs(self) -> tuple[torch.Tensor, ...]:
        """The image."""
        return (torch.ones(1, dtype=torch.bool),)

    def prepare(self, engine: Engine) -> None:
        """No patch moves more than the image."""
        self.sizes = self.grown(self.parents[0].sizes)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """The pixels of every patch."""
        return steps[0][:, 0][:, self.places]

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """No patch moves more than the image."""
        return sizes[0].expand(self.tokens)

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """Every coefficient at its pixel."""
        found = rows.values.new_zeros(len(rows), 1, self.parents[0].width)
        if rows.token is None:
            found[:, 0, self.places.flatten()] = rows.values.flatten(1)
        else:
            found[:, 0].scatter_(1, self.places[rows.token], rows.values[:, 0])
        return Pulled((Rows(found),))
