"""Setting: the norm, precision and tree that all operations of a certificate share."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from taut._base.rounding import EPS, Numbers, number, plus, root, times
from taut.networks.module_tree import TreeWriter
from taut.networks.region import Region
from taut.networks.rounding_error import ESTIMATE, UNDERFLOW, RoundingError


class Setting:
    """What every operation works with. The families of operations are its subclasses.

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
    proved
        Whether the rounding of the centre (``Region.drift``) is proved to the end. In an estimate
        each operation adds what is proved of it, but carries no more than 1e-9 of the longest
        token on from those before it.
    tree
        Where constants and their reasons are written.
    assumed
        Whether the rounding of some function had to be taken on trust.
    """

    def __init__(
        self,
        norm: Literal["l2", "token"],
        eps: float,
        device: torch.device,
        *,
        dry: bool = False,
        proved: bool = True,
    ) -> None:
        self.norm = norm
        self.eps = eps
        self.device = device
        self.dry = dry
        self.proved = proved
        self.tree = TreeWriter()
        self.assumed = False

    def explain(self, rule: str, *theorem: str) -> None:
        """Say in a few words what the constant of the module in hand is made of."""
        self.tree.explain(rule, theorem)

    def leaf(self, name: str | None, kind: str, constant: Any, rule: str, *theorem: str) -> None:
        """Write an operation into the tree, as a part of the module in hand.

        Without a name the operation is all that the module does, and explains it.
        """
        if name is None:
            self.tree.explain(rule, theorem)
        else:
            self.tree.leaf(name, kind, constant, rule, theorem)

    def tensor(self, value: torch.Tensor) -> torch.Tensor:
        """A weight in float64, where the arithmetic is done."""
        return value.detach().to(self.device, torch.float64)

    def rounding(self, x: Region, size: Any, terms: float) -> RoundingError:
        """What sums of so many ``terms`` of this total ``size`` for each token err by."""
        return self.rounding_by(x, lambda eps: times(eps * terms, size))

    def rounding_by(self, x: Region, error: Callable[[float], Numbers]) -> RoundingError:
        """The same for an error of each token that is a function of the precision."""
        many = root(x.tokens) if self.norm == "l2" else 1.0
        centre = plus(times(many, error(EPS)), UNDERFLOW)
        return RoundingError(times(many, error(self.eps)), centre, self._limit)

    def offset(self, amount: Any) -> RoundingError:
        """A fixed error, in the norm of the certificate, whatever the precision is."""
        fixed = np.atleast_1d(number(amount))
        return RoundingError(fixed, fixed, self._limit)

    @property
    def _limit(self) -> float:
        return math.inf if self.proved else ESTIMATE

    def tokens_only(self, x: Region) -> None:
        """Refuse an image where tokens are needed."""
        if x.image:
            raise ValueError(
                f"expected tokens (batch, tokens, width), got an image of shape {x.image}"
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
                f"{type(module).__name__} drops entries at random in training mode; certify the "
                "network that is used: module.eval()"
            )
