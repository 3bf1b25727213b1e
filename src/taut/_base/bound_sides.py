"""The sides of a bound: checked when it is made, and compared with numbers."""

from __future__ import annotations

from numbers import Real
from typing import TYPE_CHECKING

from taut._base.array import Array, known, namespace, quietly, stop_gradient
from taut._base.bound_text import numbers

if TYPE_CHECKING:
    from taut._base.bound import Bound


@quietly
def check_sides(lower: Array, upper: Array, estimate: Array, *, signed: bool = False) -> None:
    """Refuse sides in the wrong order and NaN; what is being traced is not known yet."""
    good = (lower <= upper) if signed else (lower >= 0) & (lower <= upper)
    if estimate is not None:
        good = good & (estimate == estimate)  # only NaN is not
    if isinstance(good, bool):
        wrong = not good
    else:
        xp = namespace(good)
        wrong = known(xp.any(~good))
    if wrong:
        least = "" if signed else "0 <= "
        raise ValueError(f"sides must be numbers with {least}lower <= upper, got {lower}, {upper}")


def comparable(bound: Bound, other: float) -> tuple[float, float]:
    """The sides as plain numbers, if ``other`` is one too."""
    if bound.shape != ():
        raise TypeError("compare .upper or .lower of a batch, element by element")
    if not isinstance(other, Real):
        raise TypeError(f"a bound compares with one real number, got {type(other).__name__}")
    try:
        return float(stop_gradient(bound.lower)), float(stop_gradient(bound.upper))
    except (TypeError, RuntimeError):
        raise TypeError(
            "a bound has no values to compare while it is traced: use .upper or .lower"
        ) from None


def decided(bound: Bound, other: float, *, yes: bool, no: bool) -> bool:
    """The answer of a comparison, where the bracket settles it."""
    if yes or no:
        return yes
    raise ValueError(f"undecided: {other} against {numbers(bound)}")
