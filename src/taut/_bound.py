"""Bound: a constant that says what it is."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any, Literal, NamedTuple

from taut import theorems
from taut._array import Array, known, namespace, quietly, stop_gradient
from taut._checks import as_float_array, exponent, real_number
from taut._rounding import product

__all__ = ["Bound", "Norm", "lp", "upper_bound"]

Kind = Literal["exact", "bracket", "upper", "lower"]
LIPSCHITZ = "Lipschitz constant"
_FIELDS = ("lower", "upper", "kind", "norm", "domain", "theorem", "estimate", "quantity")


class Norm(NamedTuple):
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
    return Norm(_name(p), _name(p if q is None else q))


def _name(p: float) -> str:
    """L and the exponent in full: two norms are one norm only if they are exactly the same."""
    return f"l{repr(float(p)).removesuffix('.0')}"


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
    estimate
        The value of an exact constant, between the sides; read it as ``value``.
    quantity
        What is bounded: a Lipschitz constant unless it says otherwise. Only those compose.

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
        "theorem",
        "upper",
    )

    # NumPy must not take a bound apart: `array * bound` is an error that says what to read.
    __array_ufunc__ = None

    lower: Array
    upper: Array
    kind: Kind
    norm: Norm
    domain: str
    theorem: tuple[str, ...]
    estimate: Array
    quantity: str

    def __init__(
        self,
        lower: Array,
        upper: Array,
        kind: Kind,
        norm: Norm,
        domain: str,
        theorem: tuple[str, ...] | str,
        estimate: Array = None,
        quantity: str = LIPSCHITZ,
    ) -> None:
        theorem = (theorem,) if isinstance(theorem, str) else tuple(theorem)
        fields = (lower, upper, kind, norm, domain, theorem, estimate, quantity)
        for name, value in zip(_FIELDS, fields, strict=True):
            object.__setattr__(self, name, value)
        for theorem_id in theorem:
            theorems.get(theorem_id)
        if not isinstance(norm, Norm):
            raise TypeError(f"norm must be a Norm such as taut.lp(2), got {norm!r}")
        if kind not in ("exact", "bracket", "upper", "lower"):
            raise ValueError(f"kind must be exact, bracket, upper or lower, got {kind!r}")
        if kind == "exact" and estimate is None:
            raise ValueError("an exact bound needs its value as estimate")
        _check_sides(lower, upper, estimate)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(
            f"a bound cannot be changed; make another one instead of setting {name}"
        )

    def __reduce__(self) -> tuple[type[Bound], tuple[Any, ...]]:
        return Bound, tuple(getattr(self, name) for name in _FIELDS)

    def _replace(self, **changes: Any) -> Bound:
        """The same bound with some fields changed."""
        return Bound(**{**{name: getattr(self, name) for name in _FIELDS}, **changes})

    def __array__(self, *_args: Any, **_kwargs: Any) -> Any:
        raise TypeError("a bound is no array: read .upper, .lower or, where exact, .value")

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

        return self._replace(
            lower=largest(self.lower),
            upper=largest(self.upper),
            estimate=largest(self.estimate),
            domain=f"the worst of {math.prod(self.shape)}: {self.domain}",
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
        low, high = self._comparable(other)
        return self._decide(other, yes=high <= other, no=low > other)

    def __lt__(self, other: float) -> bool:
        low, high = self._comparable(other)
        return self._decide(other, yes=high < other, no=low >= other)

    def __ge__(self, other: float) -> bool:
        low, high = self._comparable(other)
        return self._decide(other, yes=low >= other, no=high < other)

    def __gt__(self, other: float) -> bool:
        low, high = self._comparable(other)
        return self._decide(other, yes=low > other, no=high <= other)

    def _comparable(self, other: float) -> tuple[float, float]:
        """The sides as plain numbers, if ``other`` is one too."""
        if self.shape != ():
            raise TypeError("compare .upper or .lower of a batch, element by element")
        if isinstance(other, Bound) or not isinstance(other, Real):
            raise TypeError(f"a bound compares with one real number, got {type(other).__name__}")
        try:
            return float(stop_gradient(self.lower)), float(stop_gradient(self.upper))
        except (TypeError, RuntimeError):
            raise TypeError(
                "a bound has no values to compare while it is traced: use .upper or .lower"
            ) from None

    def _decide(self, other: float, *, yes: bool, no: bool) -> bool:
        """Answer a comparison only where the bracket settles it."""
        if yes or no:
            return yes
        raise ValueError(f"undecided: {other} against {self._numbers()}")

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
        what = "" if self.quantity == LIPSCHITZ else f"{self.quantity} "
        if self.kind == "exact":
            return f"{what}exact {_digits(float(self), 'ROUND_HALF_EVEN')}"
        if self.kind == "lower":
            return f"{what}at least {_digits(low, 'ROUND_FLOOR')}"
        if self.kind == "upper":
            return f"{what}at most {_digits(high, 'ROUND_CEILING')}"
        return f"{what}between {_digits(low, 'ROUND_FLOOR')} and {_digits(high, 'ROUND_CEILING')}"

    def _repr_html_(self) -> str:
        import html

        cells = (self._numbers(), str(self.norm), self.domain, ", ".join(self.theorem))
        names = ("constant", "norm", "domain", "theorem")
        body = "".join(
            f"<tr><th scope='row'>{n}</th><td>{html.escape(c)}</td></tr>"
            for n, c in zip(names, cells, strict=True)
        )
        return f"<table>{body}</table>"


def upper_bound(
    value: Array, p: float = 2, q: float | None = None, *, domain: str = "all inputs"
) -> Bound:
    """A bound of your own, from a proof of yours: a Lipschitz constant known from above.

    A number that a float cannot hold is rounded up. Arrays hold one constant for each row.

    >>> upper_bound(3.0, p=2)
    Bound(at most 3, l2, all inputs; )
    """
    if isinstance(value, Real):
        value, lower = _float_above(value), 0.0
    else:
        xp, value = as_float_array(value, name="value")
        lower = xp.zeros_like(value)
    norm = lp(exponent(p), None if q is None else exponent(q, name="q"))
    return Bound(lower, value, "upper", norm, domain, ())


def _float_above(value: Real) -> float:
    """The smallest float that is not below the number."""
    try:
        found = float(value)
    except OverflowError:
        return math.inf
    return found if math.isnan(found) or found >= value else math.nextafter(found, math.inf)


@quietly
def _check_sides(lower: Array, upper: Array, estimate: Array) -> None:
    """Refuse sides in the wrong order and NaN; what is being traced is not known yet."""
    good = (lower >= 0) & (lower <= upper)
    if estimate is not None:
        good = good & (estimate == estimate)  # only NaN is not
    if isinstance(good, bool):
        wrong = not good
    else:
        xp = namespace(good)
        wrong = known(xp.any(~good))
    if wrong:
        raise ValueError(f"sides must be numbers with 0 <= lower <= upper, got {lower}, {upper}")


def _digits(x: float, rounding: str) -> str:
    from decimal import Context  # not at the top: it would slow down `import taut`

    if not math.isfinite(x):
        return str(x)
    return f"{Context(prec=6, rounding=rounding).create_decimal(x).normalize():g}"
