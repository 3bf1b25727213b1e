"""The algebra of bounds: a chain multiplies, a sum adds, heads side by side add in squares."""

from __future__ import annotations

from itertools import pairwise

from taut._array import Array
from taut._bound import Bound, Norm
from taut._rounding import product, round_up, sum_up

__all__ = ["add", "chain", "heads"]


def chain(*bounds: Bound) -> Bound:
    """Constant of a composition, maps given in the order in which they act: the product.

    Lower bounds do not multiply (the worst directions need not meet), so the result is an upper
    bound. The norm that one map ends in must be the norm that the next one starts from.
    """
    _check(bounds, "chain")
    total = bounds[0].upper
    for before, after in pairwise(bounds):
        if before.norm.target != after.norm.source:
            raise ValueError(
                f"cannot chain a bound into {before.norm.target} with one from {after.norm.source}"
            )
        total = product(total, after.upper, up=True)
    return _composed(bounds, total, Norm(bounds[0].norm.source, bounds[-1].norm.target))


def add(*bounds: Bound) -> Bound:
    """Constant of a sum of maps, such as a residual connection: the sum. Same norms throughout."""
    _check(bounds, "add")
    _same_norm(bounds)
    total = bounds[0].upper
    for bound in bounds[1:]:
        total = sum_up(total, bound.upper)
    return _composed(bounds, total, bounds[0].norm)


def heads(*bounds: Bound) -> Bound:
    """Constant of maps whose outputs are concatenated, in l2: the root of the sum of squares."""
    _check(bounds, "heads")
    _same_norm(bounds)
    if bounds[0].norm.target != "l2":
        raise ValueError(f"heads compose in l2 only, not into {bounds[0].norm.target}")
    total = product(bounds[0].upper, bounds[0].upper, up=True)
    for bound in bounds[1:]:
        total = sum_up(total, product(bound.upper, bound.upper, up=True))
    return _composed(bounds, round_up(total**0.5), bounds[0].norm)


def _check(bounds: tuple[Bound, ...], verb: str) -> None:
    if not bounds:
        raise ValueError(f"{verb} needs at least one bound")
    for bound in bounds:
        if not isinstance(bound, Bound):
            raise TypeError(f"{verb} takes bounds, got {type(bound).__name__}")
        if bound.kind == "lower":
            raise ValueError(f"{verb} needs upper bounds; {bound!r} is measured and bounds nothing")


def _same_norm(bounds: tuple[Bound, ...]) -> None:
    norms = {str(bound.norm) for bound in bounds}
    if len(norms) > 1:
        raise ValueError(f"the bounds must share one norm, got {', '.join(sorted(norms))}")


def _composed(bounds: tuple[Bound, ...], upper: Array, norm: Norm) -> Bound:
    """The composed upper bound; one map alone stays what it was."""
    if len(bounds) == 1:
        return bounds[0]
    return Bound(
        lower=0.0 * upper,
        upper=upper,
        kind="upper",
        norm=norm,
        domain=" and ".join(dict.fromkeys(bound.domain for bound in bounds)),
        theorem=tuple(dict.fromkeys(name for bound in bounds for name in bound.theorem)),
    )
