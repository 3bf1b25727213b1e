"""One attention module that was replaced, and its Lipschitz constant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from taut._base.bound import Bound


@dataclass(frozen=True)
class Swapped:
    """One attention module that was replaced.

    Attributes
    ----------
    name
        Its path in the model.
    module
        The new layer; in a model of transformers, the same attention module as before.
    """

    name: str
    module: nn.Module = field(repr=False)
    _bound: Callable[..., Bound] = field(repr=False)

    def lipschitz(self, n: int, **options: Any) -> Bound:
        """Lipschitz constant with the current weights, with the options of the layer's method.

        In a model of transformers it is that of the attention with its output projection.
        """
        return self._bound(n, **options)
