"""Operations that are linear: their rows are exact but for rounding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.node import Node, Pulled
from taut.networks.propagation.rows import Rows

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class InputNode(Node):
    """The input of the network."""

    kind = "input"

    def __init__(self, values: torch.Tensor) -> None:
        self._values = values
        super().__init__()

    def value(self) -> torch.Tensor:
        """The given input."""
        return self._values

    def prepare(self, engine: Engine) -> None:
        """The set says how far its tokens move."""
        self.sizes = engine.inputs.sizes()


class FixedNode(InputNode):
    """Something that does not move, such as a fixed context."""

    kind = "fixed"

    def prepare(self, engine: Engine) -> None:
        """Nothing moves."""

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """Nothing is read."""
        return Pulled(())

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """Nothing moves."""
        return self.centre.new_zeros(0, *self.centre.shape)

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """Nothing moves."""
        return torch.zeros_like(self.sizes)


class LinearNode(Node):
    """Wx + b of every token, the weight as (outputs, inputs).

    Rounding: an output is a sum of d products and a bias and errs by γ_(d+1) of ‖W‖_F‖x‖ + ‖b‖ for
    all outputs of a token. The same holds of rows, whose errors the deviation of x multiplies.
    """

    def __init__(self, x: Node, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.weight, self.bias = weight, bias
        super().__init__(x)
        self._size = float(weight.norm()) * (1 + 1e-9)
        self._fixed = 0.0 if bias is None else float(bias.norm()) * (1 + 1e-9)

    @property
    def work(self) -> float:
        """A product of matrices."""
        return float(self.tokens * self.weight.numel())

    def value(self) -> torch.Tensor:
        """Wx + b."""
        found = self.parents[0].centre @ self.weight.mT
        return found if self.bias is None else found + self.bias

    def prepare(self, engine: Engine) -> None:
        """Sizes by the Frobenius norm, until a box says better."""
        (x,) = self.parents
        self.sizes = self.grown(x.sizes)
        terms = self.weight.shape[1] + 2
        self.local = engine.unit * terms * (self._size * x.longest + self._fixed)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """Every step times the weight."""
        return steps[0] @ self.weight.mT

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """By the Frobenius norm."""
        return self._size * sizes[0]

    def entry_rows(self, tokens: torch.Tensor) -> tuple[Node, Rows, torch.Tensor]:
        """The weight itself, on the input."""
        if self.offset is not None:
            return super().entry_rows(tokens)
        token = tokens.repeat_interleave(self.width)
        rows = Rows(self.weight.repeat(len(tokens), 1)[:, None], token)
        return self.parents[0], rows, self.local[token]

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The rows times the weight."""
        terms = self.weight.shape[0] + 2
        lost = rows.weighed(self.parents[0].sizes) * (terms * EPS * self._size)
        return Pulled((rows.but(rows.values @ self.weight),), rounding=lost)


class ScaleNode(Node):
    """Each coordinate times its factor."""

    def __init__(self, x: Node, factors: torch.Tensor) -> None:
        self.factors = factors
        super().__init__(x)

    def value(self) -> torch.Tensor:
        """x∘factors."""
        return self.parents[0].centre * self.factors

    def prepare(self, engine: Engine) -> None:
        """One product for every entry."""
        (x,) = self.parents
        self.sizes = self.grown(x.sizes)
        self.local = engine.unit * 2 * self.grown(x.longest)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """Every step times the factors."""
        return steps[0] * self.factors

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """By the largest factor."""
        return float(self.factors.abs().max()) * (1 + 4 * EPS) * sizes[0]

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The rows times the factors."""
        values = rows.values * self.factors
        return Pulled((rows.but(values),), rounding=2 * EPS * rows.weighed(self.sizes))


class ShiftNode(Node):
    """Something fixed added, such as positions."""

    def __init__(self, x: Node, fixed: torch.Tensor) -> None:
        self.fixed = fixed
        super().__init__(x)

    def value(self) -> torch.Tensor:
        """X + fixed."""
        return self.parents[0].centre + self.fixed

    def prepare(self, engine: Engine) -> None:
        """Rounding: one addition, and one more in case the fixed term is a sum itself."""
        (x,) = self.parents
        self.sizes = x.sizes
        self.local = engine.unit * 2 * (x.longest + self.fixed.norm(dim=-1))

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """The same steps."""
        return steps[0]

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """The same sizes."""
        return sizes[0]

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The same rows."""
        return Pulled((rows,))


class BatchNormNode(Node):
    """BatchNorm with fixed statistics: (x − mean)·factor + shift, each (tokens, width).

    Rounding: see :meth:`NormOperations.batch_norm`.
    """

    def __init__(
        self, x: Node, factor: torch.Tensor, mean: torch.Tensor, shift: torch.Tensor
    ) -> None:
        self.factor, self.mean, self.shift = factor, mean, shift
        super().__init__(x)

    def value(self) -> torch.Tensor:
        """(x − mean)·factor + shift."""
        return (self.parents[0].centre - self.mean) * self.factor + self.shift

    def prepare(self, engine: Engine) -> None:
        """The largest factor of each token."""
        (x,) = self.parents
        self.sizes = self.grown(x.sizes)
        fixed = (self.factor * self.mean).norm(dim=-1) + self.shift.norm(dim=-1)
        self.local = engine.unit * 8 * (self.grown(x.longest) + fixed)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """Every step times the factors."""
        return steps[0] * self.factor

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """By the largest factor of each token."""
        return self.factor.abs().amax(dim=-1) * (1 + 8 * EPS) * sizes[0]

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The rows times the factors."""
        values = rows.values * rows.of(self.factor)
        return Pulled((rows.but(values),), rounding=8 * EPS * rows.weighed(self.sizes))


class AddNode(Node):
    """The sum of two, as in a residual connection."""

    def value(self) -> torch.Tensor:
        """X + y."""
        x, y = self.parents
        return x.centre + y.centre

    def prepare(self, engine: Engine) -> None:
        """Sizes add up."""
        x, y = self.parents
        self.sizes = self.grown(x.sizes, y.sizes)
        self.local = engine.unit * (x.longest + y.longest)

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """The sum of the steps."""
        return steps[0] + steps[1]

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """The sum of the sizes."""
        return sizes[0] + sizes[1]

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The same rows on both."""
        return Pulled((rows, rows))
