"""Bound: a constant that says what it is."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context
from typing import Any, Literal

from taut import theorems
from taut._array import Array, known, namespace, stop_gradient
from taut._rounding import product

__all__ = ["Bound", "Norm", "lp"]

Kind = Literal["exact", "bracket", "upper", "lower"]


@dataclass(frozen=True)
class Norm:
    """The norm in which changes of the input and of the output are measured."""

    source: str
    target: str

    def __str__(self) -> str:
        return self.source if self.source == self.target else f"{self.source}->{self.target}"


def lp(p: float, q: float | None = None) -> Norm:
    """Norm l_p, or l_p on the input and l_q on the output.

    >>> str(lp(2)), str(lp(math.inf, 1))
    ('l2', 'linf->l1')
    """
    return Norm(f"l{p:g}", f"l{p if q is None else q:g}")


@dataclass(frozen=True, eq=False)
class Bound:
    """A sensitivity constant (or one for each row) with its provenance.

    ``upper`` is never below the true constant and ``lower`` never above it: code that needs a
    guarantee reads ``upper``, code that needs evidence reads ``lower``. Both are rounded outward,
    so for an exact constant they differ by a few units in the last place around ``value``.

    Attributes
    ----------
    lower, upper
        Numbers, or arrays of the batch's shape in the caller's array library.
    kind
        ``"exact"`` (a theorem gives the value), ``"bracket"`` (both sides certified), ``"upper"``
        (nothing is known from below, ``lower`` is 0), or ``"lower"`` (measured, ``upper`` is inf).
    norm, domain
        In which norm, and for which inputs, the constant holds.
    theorem
        Ids of :data:`taut.theorems.THEOREMS` that it rests on.
    """

    lower: Array
    upper: Array
    kind: Kind
    norm: Norm
    domain: str
    theorem: tuple[str, ...]
    estimate: Array = None

    def __post_init__(self) -> None:
        for theorem_id in self.theorem:
            theorems.get(theorem_id)

    @property
    def value(self) -> Array:
        """The constant, where it is known exactly."""
        if self.kind != "exact":
            raise TypeError(
                f"this constant is not known exactly (kind {self.kind!r}): read .upper for a "
                "guarantee or .lower for evidence"
            )
        return self.estimate

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the batch; () for a single constant."""
        return tuple(getattr(self.upper, "shape", ()))

    def max(self) -> Bound:
        """The largest constant of a batch: the constant over the set of its points."""
        if self.shape == ():
            return self
        if math.prod(self.shape) == 0:
            raise ValueError(f"a batch of shape {self.shape} has no largest constant: it is empty")

        def largest(x: Array) -> Array:
            return None if x is None else namespace(x).max(x)

        return replace(
            self,
            lower=largest(self.lower),
            upper=largest(self.upper),
            estimate=largest(self.estimate),
            domain=f"the worst of {math.prod(self.shape)}: {self.domain}",
        )

    def __getitem__(self, index: Any) -> Bound:
        if self.shape == ():
            raise TypeError("this bound is a single constant and cannot be indexed")
        pick = None if self.estimate is None else self.estimate[index]
        return replace(self, lower=self.lower[index], upper=self.upper[index], estimate=pick)

    def __len__(self) -> int:
        if self.shape == ():
            raise TypeError("this bound is a single constant and has no length")
        return self.shape[0]

    def __float__(self) -> float:
        if self.shape != ():
            raise TypeError(f"a batch of constants of shape {self.shape} is not one number")
        return float(stop_gradient(self.value))

    def __bool__(self) -> bool:
        raise TypeError("a bound has no truth value: compare it with a number")

    def __mul__(self, factor: float) -> Bound:
        """Scale by a non-negative number, rounding outward."""
        try:
            factor = float(factor)
        except (TypeError, ValueError):
            return NotImplemented
        if not 0 <= factor < math.inf:
            raise ValueError(f"a bound can be scaled by a finite number >= 0 only, got {factor}")
        return replace(
            self,
            lower=product(self.lower, factor, up=False),
            upper=self.upper if self.kind == "lower" else product(self.upper, factor, up=True),
            estimate=None if self.estimate is None else self.estimate * factor,
        )

    __rmul__ = __mul__

    def __le__(self, other: float) -> bool:
        return self._decide(other, yes=self.upper <= other, no=self.lower > other)

    def __lt__(self, other: float) -> bool:
        return self._decide(other, yes=self.upper < other, no=self.lower >= other)

    def __ge__(self, other: float) -> bool:
        return self._decide(other, yes=self.lower >= other, no=self.upper < other)

    def __gt__(self, other: float) -> bool:
        return self._decide(other, yes=self.lower > other, no=self.upper <= other)

    def _decide(self, other: float, *, yes: Array, no: Array) -> bool:
        """Answer a comparison only where the bracket settles it."""
        if self.shape != ():
            raise TypeError("compare .upper or .lower of a batch, element by element")
        if known(yes):
            return True
        if known(no):
            return False
        raise ValueError(f"undecided: {other} lies between lower {self.lower} and {self.upper}")

    def __repr__(self) -> str:
        return f"Bound({self._numbers()}, {self.norm}, {self.domain}; {', '.join(self.theorem)})"

    def _numbers(self) -> str:
        """The numbers in six digits, certified sides rounded outward also in print."""
        if self.shape != ():
            if math.prod(self.shape) == 0:
                return f"{self.kind}, shape {self.shape}"
            return f"{self.kind}, shape {self.shape}, largest {self.max()._numbers()}"
        try:
            low, high = float(stop_gradient(self.lower)), float(stop_gradient(self.upper))
        except (TypeError, RuntimeError):  # being traced
            return f"{self.kind}, traced"
        if self.kind == "exact":
            return f"exact {_digits(float(self), ROUND_HALF_EVEN)}"
        if self.kind == "lower":
            return f"at least {_digits(low, ROUND_FLOOR)}"
        if self.kind == "upper":
            return f"at most {_digits(high, ROUND_CEILING)}"
        return f"between {_digits(low, ROUND_FLOOR)} and {_digits(high, ROUND_CEILING)}"

    def _repr_html_(self) -> str:
        cells = (self._numbers(), str(self.norm), self.domain, ", ".join(self.theorem))
        names = ("constant", "norm", "domain", "theorem")
        body = "".join(
            f"<tr><th scope='row'>{n}</th><td>{html.escape(c)}</td></tr>"
            for n, c in zip(names, cells, strict=True)
        )
        return f"<table>{body}</table>"


def _digits(x: float, rounding: str) -> str:
    if not math.isfinite(x):
        return str(x)
    return f"{Context(prec=6, rounding=rounding).create_decimal(x).normalize():g}"
