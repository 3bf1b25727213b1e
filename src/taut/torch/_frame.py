"""What every rule needs: norm, precision, and the tree that it writes into."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import nn

from taut.torch._numbers import Numbers, number, times
from taut.torch._region import Region
from taut.torch._tree import Node


class Head(NamedTuple):
    """The last linear map that was met: a classifier's, if nothing follows it."""

    features: Region
    weight: torch.Tensor
    output: Region


class Frame:
    """Norm and precision of a certificate, and the tree of its modules.

    Attributes
    ----------
    norm
        ``"l2"`` over all tokens, or ``"token"``, the largest l2 norm of a token.
    eps
        Precision of the network as executed.
    device
        Where the arithmetic is done, in float64.
    dry
        Whether only the centre is followed, to compare a rule with its module.
    """

    def __init__(
        self,
        norm: Literal["l2", "token"],
        eps: float,
        device: torch.device,
        *,
        dry: bool = False,
    ) -> None:
        self.norm = norm
        self.eps = eps
        self.device = device
        self.dry = dry
        self.head: Head | None = None
        self._open: list[Node] = [Node("", "")]

    @property
    def root(self) -> Node:
        """The finished tree."""
        return self._open[0].children[0]

    @contextmanager
    def inside(self, node: Node) -> Iterator[None]:
        """Everything noted meanwhile belongs to this node."""
        self._open[-1].children.append(node)
        self._open.append(node)
        try:
            yield
        finally:
            self._open.pop()

    def note(
        self, name: str | None, kind: str, rule: str, theorem: tuple[str, ...], constant: Any
    ) -> None:
        """Say what a constant is made of: of the module in hand, or of a part of it with a name."""
        if name is None:
            self._open[-1].rule, self._open[-1].theorem = rule, theorem
            return
        values = np.atleast_1d(number(constant))
        self._open[-1].children.append(Node(name, kind, rule, theorem, values))

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        """A weight in float64, where the arithmetic is done."""
        return value.detach().to(self.device, torch.float64)

    def rounding(self, x: Region, size: Any, terms: float) -> Numbers:
        """What one operation adds to ``err``: eps·terms·size for each token."""
        many = math.sqrt(x.tokens) if self.norm == "l2" else 1.0
        return times(self.eps * terms * many, size)

    def tokens_only(self, x: Region) -> None:
        """Refuse an image where tokens are wanted."""
        if x.image:
            raise ValueError(
                f"an image of shape {x.image} came where tokens (batch, tokens, width) are wanted"
            )

    def fits(self, x: Region, width: int, what: str) -> None:
        """Refuse images, and tokens of another width than a module takes."""
        self.tokens_only(x)
        if x.width != width:
            raise ValueError(f"{what} takes tokens of width {width}, got width {x.width}")

    def steady(self, module: nn.Module, probability: float) -> None:
        """Refuse a module that draws random numbers."""
        if module.training and probability > 0:
            raise ValueError(
                f"{type(module).__name__} drops at random in training mode; certify the network "
                "that is used: module.eval()"
            )
