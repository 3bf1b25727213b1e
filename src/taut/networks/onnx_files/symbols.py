"""What stands for the values of an ONNX file while a rule follows it.

Rules work on tokens (tokens, width). A value of the file is any number of axes whose entries come
from such tokens: each says which entry it is. Moving entries about then costs nothing, and terms
that rules take as one (linear maps of attention, its scores, parts of norm layers) wait until it
is clear what becomes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from taut.networks.operations.linear import Affine


class TokenSource:
    """Tokens that entries come from: a region or node, or a linear map that is not yet applied.

    Parameters
    ----------
    x
        What the rules work on, in front of the map.
    map_
        The linear map of every token, or None.
    name
        The node that applies it.
    """

    def __init__(self, x: Any, map_: Affine | None = None, name: str = "") -> None:
        self.x, self.map, self.name = x, map_, name
        self._made: Any = x if map_ is None else None

    @property
    def width(self) -> int:
        """Width of a token."""
        return int(self.x.width if self.map is None else self.map[0].shape[0])

    @property
    def count(self) -> int:
        """How many entries there are."""
        return int(self.x.tokens) * self.width

    @property
    def is_image(self) -> bool:
        """Whether it is an image yet, which has no tokens to work on."""
        return bool(self.x.image)

    def made(self, run: Any) -> Any:
        """The region or node itself."""
        if self._made is None:
            assert self.map is not None
            self._made = run.linear(self.x, *self.map, self.name)
        return self._made

    def affine(self) -> tuple[Any, Affine]:
        """Tokens and the linear map that makes these of them, the identity if there is none."""
        if self.map is not None:
            return self.x, self.map
        return self.x, (torch.eye(self.width, dtype=torch.float64), None)


@dataclass(frozen=True)
class PlacedEntries:
    """A value of the file: entries of tokens, in any arrangement.

    Attributes
    ----------
    tokens
        Where the entries come from.
    places
        Which one each is, counted through all tokens; of the shape of the value.
    factor
        A number that all are multiplied by.
    """

    tokens: TokenSource
    places: torch.Tensor
    factor: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return tuple(self.places.shape)

    def moved(self, places: torch.Tensor) -> PlacedEntries:
        """The same entries in another arrangement."""
        return replace(self, places=places)

    def times(self, factor: float) -> PlacedEntries:
        """All entries times a number."""
        return replace(self, factor=self.factor * factor)

    def alike(self, other: object) -> bool:
        """Whether these are the same entries, but for the factor."""
        return (
            isinstance(other, PlacedEntries)
            and self.tokens is other.tokens
            and torch.equal(self.places, other.places)
        )

    def same(self, other: object) -> bool:
        """Whether these are the same entries with the same factor."""
        return self.alike(other) and self.factor == getattr(other, "factor", None)


@dataclass(frozen=True)
class ScoreProduct:
    """Products of queries and keys, (..., queries, keys), not yet put through a softmax."""

    queries: PlacedEntries  # (..., queries, width)
    keys: PlacedEntries  # (..., keys, width)
    scale: float = 1.0
    bias: torch.Tensor | None = None  # of the shape of the scores; −inf where a key is not seen
    weights: bool = False  # whether the softmax was taken

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return (*self.queries.shape[:-1], self.keys.shape[-2])


@dataclass(frozen=True)
class NormPart:
    """A part of a norm layer that is written out: what it is, and of which entries.

    ``kind`` is "mean", "centred" (x − mean), "square", "power" (its mean), "root" or "inverse".
    """

    kind: str
    of: PlacedEntries
    centred: bool = False
    epsilon: float = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        whole = self.kind in ("centred", "square")
        return self.of.shape if whole else (*self.of.shape[:-1], 1)
