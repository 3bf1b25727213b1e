"""Domains: the inputs for which a bound holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from taut._base.array import Array
from taut._base.checks import real_number
from taut._base.domain_checks import Shape, check_inputs, check_radius, checked_shape, radii_of

__all__ = [
    "At",
    "Ball",
    "Described",
    "Domain",
    "Everywhere",
    "Restricted",
    "as_domain",
    "joined",
    "radii",
]


class Domain:
    """A set of inputs. ``str`` describes it, ``==`` compares, ``given`` adds conditions."""

    __slots__: tuple[str, ...] = ()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a domain cannot be changed; make another one instead of {name}")

    def _set(self, **fields: Any) -> None:
        """Set the fields, once."""
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (type(self), {name: getattr(self, name) for name in self.__slots__})

    def given(self, *conditions: str) -> Domain:
        """The same inputs under further conditions, such as "causal mask"; empty ones are none.

        >>> str(Everywhere().given("up to 16 tokens", "any mask"))
        'all inputs, up to 16 tokens, any mask'
        """
        added = tuple(condition for condition in conditions if condition)
        return Restricted((self,), added) if added else self

    def _key(self) -> tuple[Any, ...]:
        """What makes two domains of one class the same."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, Domain):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash((type(self).__name__, str(self)))


class Everywhere(Domain):
    """All inputs, or all inputs of a shape.

    A ``shape`` is (n,) for vectors of R^n, (tokens, width) for tokens, or (channels, height, width)
    for images. Dot-product attention has a bound everywhere only if a norm layer stands before it.

    >>> Everywhere(shape=(16, 64)), str(Everywhere())
    (Everywhere(shape=(16, 64)), 'all inputs')
    """

    __slots__ = ("name", "shape")
    name: str
    shape: Shape | None

    def __init__(self, shape: Shape | None = None, *, name: str = "all inputs") -> None:
        self._set(shape=None if shape is None else checked_shape(shape), name=name)

    def _key(self) -> tuple[Any, ...]:
        return self.shape, self.name

    def __repr__(self) -> str:
        return "Everywhere()" if self.shape is None else f"Everywhere(shape={self.shape})"

    def __str__(self) -> str:
        if self.shape is None:
            return self.name
        one = len(self.shape) == 1
        return f"all x in R^{self.shape[0]}" if one else f"all inputs of shape {self.shape}"


class Ball(Domain):
    """All inputs whose tokens are of l2 norm at most ``radius``.

    ``shape`` is that of one input: (tokens, width), or (channels, height, width) for images, which
    count as one token. Networks need it; bounds of attention take the number of tokens apart.

    >>> Ball(2.0, shape=(16, 64)), str(Ball(3.0))
    (Ball(2.0, shape=(16, 64)), 'tokens of length at most 3')
    """

    __slots__ = ("radius", "shape")
    radius: float
    shape: Shape | None

    def __init__(self, radius: float, shape: Shape | None = None) -> None:
        found = real_number(radius, name="radius")
        if not 0 <= found < math.inf:
            raise ValueError(f"radius must be a finite number >= 0, got {radius}")
        self._set(radius=found, shape=None if shape is None else checked_shape(shape, axes=2))

    def _key(self) -> tuple[Any, ...]:
        return self.radius, self.shape

    def __repr__(self) -> str:
        shape = "" if self.shape is None else f", shape={self.shape}"
        return f"Ball({self.radius}{shape})"

    def __str__(self) -> str:
        long = f"tokens of length at most {self.radius:g}"
        return long if self.shape is None else f"all inputs of shape {self.shape} with {long}"


class At(Domain):
    """Given inputs, or with a ``radius`` all inputs that near to one of them.

    Parameters
    ----------
    inputs
        Arrays of any library: logits, tokens (tokens, width), or for networks a batch (batch,
        tokens, width), (batch, width) or images (batch, channels, height, width). For models of
        text these are the word embeddings, ``inputs_embeds``.
    radius
        How far an input may be from the given one in the norm of the bound: one number, or one for
        each of the inputs. 0 bounds the derivative at the inputs themselves.
    name
        What the text calls the inputs.
    """

    __slots__ = ("inputs", "name", "radius")
    inputs: Array
    name: str
    radius: Any

    def __init__(self, inputs: Array, radius: Any = 0.0, *, name: str = "these inputs") -> None:
        found = np.asarray(inputs) if isinstance(inputs, (list, tuple)) else inputs
        check_inputs(found)
        check_radius(radius, found)
        self._set(inputs=found, radius=radius, name=name)

    def _key(self) -> tuple[Any, ...]:
        return self.name, radii_of(self.radius).tolist()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, At):
            return NotImplemented
        mine, others = self.inputs, other.inputs
        if mine is not others:
            same = type(mine) is type(others) and mine.shape == others.shape
            if not (same and bool((mine == others).all())):
                return False
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(("At", tuple(self.inputs.shape)))

    def __repr__(self) -> str:
        radius = "" if not radii_of(self.radius).any() else f", radius={self.radius}"
        return f"At(inputs of shape {tuple(self.inputs.shape)}{radius})"

    def __str__(self) -> str:
        radius = radii_of(self.radius)
        if not radius.any():
            return f"at {self.name}"
        near = f"{radius.reshape(-1)[0]:g}" if radius.size == 1 else "its radius"
        return f"within {near} of {self.name}"


class Described(Domain):
    """A set of inputs in words, such as "all pairs of mixed strategies"."""

    __slots__ = ("text",)
    text: str

    def __init__(self, text: str) -> None:
        self._set(text=text)

    def _key(self) -> tuple[Any, ...]:
        return (self.text,)

    def __repr__(self) -> str:
        return f"Described({self.text!r})"

    def __str__(self) -> str:
        return self.text


class Restricted(Domain):
    """Inputs that lie in all of these domains, under conditions: where a chain of bounds holds."""

    __slots__ = ("conditions", "domains")
    conditions: tuple[str, ...]
    domains: tuple[Domain, ...]

    def __init__(self, domains: tuple[Domain, ...], conditions: tuple[str, ...] = ()) -> None:
        self._set(domains=domains, conditions=conditions)

    def given(self, *conditions: str) -> Domain:
        """The same inputs under further conditions."""
        new = (c for c in conditions if c and c not in self.conditions)
        return Restricted(self.domains, (*self.conditions, *new))

    def _key(self) -> tuple[Any, ...]:
        return self.domains, self.conditions

    def __repr__(self) -> str:
        return f"Restricted({self.domains}, {self.conditions})"

    def __str__(self) -> str:
        return ", ".join([" and ".join(map(str, self.domains)), *self.conditions])


def _rebuilt(kind: type[Domain], fields: dict[str, Any]) -> Domain:
    found = kind.__new__(kind)
    found._set(**fields)
    return found


def as_domain(value: Any) -> Domain:
    """A domain as it is; words and arrays as one."""
    if isinstance(value, Domain):
        return value
    return Described(value) if isinstance(value, str) else At(value)


def joined(*domains: Domain) -> Domain:
    """Where several bounds hold, each in its own place of a chain or sum."""
    different = tuple(dict.fromkeys(domains))
    return different[0] if len(different) == 1 else Restricted(different)


def radii(domain: At) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The radius or radii of given inputs as float64."""
    return radii_of(domain.radius)
