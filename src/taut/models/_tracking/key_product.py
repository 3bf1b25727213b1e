"""The product of queries and keys that scores come from."""

from __future__ import annotations

from typing import NamedTuple

import torch


class Product(NamedTuple):
    """Where scores came from: factor·⟨query, key⟩ and terms that do not depend on the query."""

    keys: torch.Tensor  # (batch, width, keys), the right factor of the product
    version: int  # of the keys when they were multiplied
    factor: float
    bent: bool  # through slopes in [0, 1], or beside a constant score: as if 0 were a key too

    @property
    def known(self) -> bool:
        """Whether the keys still are what they were."""
        return version(self.keys) == self.version


def version(tensor: torch.Tensor) -> int:
    """How often a tensor was written to; 0 in inference mode, which does not count."""
    return 0 if tensor.is_inference() else tensor._version
