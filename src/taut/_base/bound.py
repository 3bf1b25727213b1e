"""Bound: a constant that says what it is."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Literal

from taut import theorems
from taut._base.array import Array, namespace, quietly, stop_gradient
from taut._base.array_rounding import product
from taut._base.bound_sides import check_sides, comparable, decided
from taut._base.bound_text import LIPSCHITZ, VALUE, table, text
from taut._base.checks import real_number
from taut._base.domain import Domain, as_domain
from taut._base.norm import Norm
from taut._base.reductions import row_max

__all__ = ["Bound"]

Kind = Literal["exact", "bracket", "upper", "lower"]
Rounding = Literal["proved", "estimated"]
_FIELDS = (
    "lower", "upper", "kind", "norm", "domain", "theorem", "estimate", "quantity", "rounding",
)  # fmt: skip


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
        In which norm, and for which inputs, the constant holds; a domain given in words becomes a
        :class:`Described`.
    theorem
        Ids of :data:`taut.theorems.THEOREMS` that it rests on.
    estimate
        The value of an exact constant, between the sides; read it as ``value``.
    quantity
        What is bounded: a Lipschitz constant unless it says otherwise. Only those compose. A
        ``"value"`` of a function may be negative.
    rounding
        ``"proved"`` if an error analysis shows that ``lower`` and ``upper`` are rounded outward far
        enough, ``"estimated"`` if a safety factor stands in for that analysis.

    Notes
    -----
    A batch can be indexed and has a length. A single bound can be scaled by a number ≥ 0, and
    compared with a number: the comparison is answered where the bracket settles it and an error
    otherwise. Inside ``jax.jit`` return ``.upper``, ``.lower`` or ``.value``, not the bound itself.
    """

    # A plain class rather than a dataclass: that module alone would add a tenth to `import taut`.
    __slots__ = (
        "domain",
        "estimate",
        "kind",
        "lower",
        "norm",
        "quantity",
        "rounding",
        "theorem",
        "upper",
    )

    # NumPy must not take a bound apart: `array * bound` is an error that says what to read.
    __array_ufunc__ = None

    lower: Array
    upper: Array
    kind: Kind
    norm: Norm
    domain: Domain
    theorem: tuple[str, ...]
    estimate: Array
    quantity: str
    rounding: Rounding

    def __init__(
        self,
        lower: Array,
        upper: Array,
        kind: Kind,
        norm: Norm,
        domain: Domain | str,
        theorem: tuple[str, ...] | str,
        estimate: Array = None,
        quantity: str = LIPSCHITZ,
        *,
        rounding: Rounding,
    ) -> None:
        theorem = (theorem,) if isinstance(theorem, str) else tuple(theorem)
        domain = as_domain(domain)
        fields = (lower, upper, kind, norm, domain, theorem, estimate, quantity, rounding)
        for name, value in zip(_FIELDS, fields, strict=True):
            object.__setattr__(self, name, value)
        for theorem_id in theorem:
            theorems.get(theorem_id)
        if not isinstance(norm, Norm):
            raise TypeError(f"norm must be a Norm such as taut.lp(2), got {norm!r}")
        if kind not in ("exact", "bracket", "upper", "lower"):
            raise ValueError(f"kind must be exact, bracket, upper or lower, got {kind!r}")
        if rounding not in ("proved", "estimated"):
            raise ValueError(f"rounding must be proved or estimated, got {rounding!r}")
        if kind == "exact" and estimate is None:
            raise ValueError("an exact bound needs its value as estimate")
        check_sides(lower, upper, estimate, signed=quantity == VALUE)

    @classmethod
    def _with_checked_sides(cls, *fields: Any) -> Bound:
        """A bound of all fields in order, whose sides the code that computed them has checked.

        Looking at the sides again would take longer than computing those of a few rows.
        """
        bound = cls.__new__(cls)
        for setter, value in zip(_SETTERS, fields, strict=True):
            setter(bound, value)
        return bound

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"a bound cannot be changed; make another one instead of setting {name}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, ({name: getattr(self, name) for name in _FIELDS},)

    def _replace(self, **changes: Any) -> Bound:
        """The same bound with some fields changed."""
        return Bound(**{**{name: getattr(self, name) for name in _FIELDS}, **changes})

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("a bound is not an array: read .upper, .lower or, where exact, .value")

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
            return None if x is None else row_max(namespace(x).reshape(x, (-1,)))

        return self._replace(
            lower=largest(self.lower),
            upper=largest(self.upper),
            estimate=largest(self.estimate),
            domain=self.domain.given(f"the worst of {math.prod(self.shape)}"),
        )

    def __getitem__(self, index: Any) -> Bound:
        if self.shape == ():
            raise TypeError("this bound is a single constant and cannot be indexed")
        pick = None if self.estimate is None else self.estimate[index]
        return self._replace(lower=self.lower[index], upper=self.upper[index], estimate=pick)

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

    @quietly
    def __mul__(self, factor: float) -> Bound:
        """Scale by a non-negative number, rounding outward."""
        if isinstance(factor, Bound):
            raise TypeError("bounds do not multiply: compose them with taut.chain")
        if not isinstance(factor, Real):
            return NotImplemented
        if self.quantity == VALUE:
            raise TypeError("the range of a function does not scale: bound a scaled function")
        factor = real_number(factor, name="the factor")
        if not 0 <= factor < math.inf:
            raise ValueError(f"a bound can be scaled by a finite number >= 0 only, got {factor}")
        return self._replace(
            lower=product(self.lower, factor, up=False),
            upper=self.upper if self.kind == "lower" else product(self.upper, factor, up=True),
            estimate=None if self.estimate is None else self.estimate * factor,
        )

    __rmul__ = __mul__

    def __le__(self, other: float) -> bool:
        low, high = comparable(self, other)
        return decided(self, other, yes=high <= other, no=low > other)

    def __lt__(self, other: float) -> bool:
        low, high = comparable(self, other)
        return decided(self, other, yes=high < other, no=low >= other)

    def __ge__(self, other: float) -> bool:
        low, high = comparable(self, other)
        return decided(self, other, yes=low >= other, no=high < other)

    def __gt__(self, other: float) -> bool:
        low, high = comparable(self, other)
        return decided(self, other, yes=low > other, no=high <= other)

    def __repr__(self) -> str:
        return text(self)

    def _repr_html_(self) -> str:
        return table(self)


_SETTERS = [getattr(Bound, name).__set__ for name in _FIELDS]  # past Bound.__setattr__


def _rebuilt(fields: dict[str, Any]) -> Bound:
    """A bound from its pickle."""
    return Bound(**fields)


def weakest_rounding(*bounds: Bound) -> Rounding:
    """Rounding of a number computed from these bounds: estimated if that of any of them is."""
    return "estimated" if any(b.rounding == "estimated" for b in bounds) else "proved"
