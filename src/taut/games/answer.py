"""The base of all answers: batches can be indexed, and answers can become JSON."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from taut._base.array import to_host
from taut._base.bound import Bound
from taut._base.html_table import html_facts, html_lines

R = TypeVar("R", bound="Answer")


class Answer(ABC):
    """Base of the frozen dataclasses that hold answers for one game or a batch of games."""

    __slots__ = ()

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Shape of the batch; () for a single game."""

    def __getitem__(self: R, index: Any) -> R:
        """The answer to one game of a batch, or to some of them."""
        if not self.shape:
            raise TypeError("this is the answer to a single game and cannot be indexed")
        # By number of the game, so that an index means games and never strategies.
        chosen = np.arange(math.prod(self.shape)).reshape(self.shape)[index].copy()
        batch = len(self.shape)
        names = [f.name for f in fields(self)]  # type: ignore[arg-type]
        return replace(  # type: ignore[type-var]
            self, **{name: _pick(getattr(self, name), chosen, index, batch) for name in names}
        )

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("this is the answer to a single game and has no length")
        return self.shape[0]

    def single(self) -> None:
        """Refuse to speak of a batch as if it were one game."""
        if self.shape:
            raise TypeError(f"this is a batch of shape {self.shape}: pick a game, as in answer[0]")

    def facts(self) -> list[tuple[str, str]]:
        """The answer to a single game in words, as pairs of name and text."""
        return [("answer", str(self))]

    def _repr_html_(self) -> str:
        """The answer in a notebook: a table; of a batch, a line."""
        return html_lines(str(self)) if self.shape else html_facts(self.facts())

    def to_dict(self) -> dict[str, Any]:
        """All fields as lists, numbers, strings and dictionaries, fit for JSON."""
        return {f.name: _plain(getattr(self, f.name)) for f in fields(self)}  # type: ignore[arg-type]


def _pick(value: Any, chosen: Any, index: Any, batch: int) -> Any:
    """The part of a field that belongs to some games; what all share stays."""
    if isinstance(value, Bound):
        sides = (_pick(side, chosen, index, batch) for side in (value.lower, value.upper))
        return value._replace(**dict(zip(("lower", "upper"), sides, strict=True)))
    if isinstance(value, Answer):
        return value[index]
    if isinstance(value, tuple):
        return tuple(_pick(part, chosen, index, batch) for part in value)
    if not hasattr(value, "shape"):
        return value
    picked = value.reshape((-1, *value.shape[batch:]))[chosen]
    return picked.item() if picked.shape == () else picked


def _plain(value: Any) -> Any:
    if isinstance(value, Answer):
        return value.to_dict()
    if isinstance(value, Bound):
        upper = to_host(value.upper)
        return {
            "upper": _plain(upper),
            "norm": str(value.norm),
            "domain": str(value.domain),
            "theorem": list(value.theorem),
            "rounding": value.rounding,
        }
    if hasattr(value, "shape"):
        return _plain(to_host(value).tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value.item() if isinstance(value, np.generic) else value
