"""The algebra of bounds: a chain multiplies, a sum adds, heads side by side add in squares."""

from __future__ import annotations

from itertools import pairwise

from taut._base.array import Array, namespace
from taut._base.array_rounding import hypotenuse_up, product, sum_up
from taut._base.bound import Bound, weakest_rounding
from taut._base.bound_text import LIPSCHITZ
from taut._base.domain import joined
from taut._base.norm import Norm

__all__ = ["add", "chain", "heads"]


def chain(*bounds: Bound) -> Bound:
    """Constant of a composition, maps given in the order in which they act: the product.

    Lower bounds do not multiply (the worst directions need not meet), so the result is an upper
    bound. The norm that one map ends in must be the norm that the next one starts from. That the
    outputs of one map lie in the domain of the next is for the caller to know; the domains are
    listed.

    >>> from taut import upper_bound
    >>> chain(upper_bound(3.0, p=2), upper_bound(0.5, p=2))
    Bound(at most 1.5, l2, all inputs; )
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
    """Constant of a sum of maps, such as a residual connection: the sum. Same norms throughout.

    >>> from taut import upper_bound
    >>> add(upper_bound(1.0, p=2), upper_bound(0.5, p=2))
    Bound(at most 1.5, l2, all inputs; )
    """
    _check(bounds, "add")
    _same_norm(bounds)
    total = bounds[0].upper
    for bound in bounds[1:]:
        total = sum_up(total, bound.upper)
    return _composed(bounds, total, bounds[0].norm)


def heads(*bounds: Bound) -> Bound:
    """Constant of maps whose outputs are concatenated, in l2: the root of the sum of squares.

    >>> from taut import upper_bound
    >>> heads(upper_bound(3.0, p=2), upper_bound(4.0, p=2))
    Bound(at most 5, l2, all inputs; )
    """
    _check(bounds, "heads")
    _same_norm(bounds)
    if bounds[0].norm.target != "l2":
        raise ValueError(f"heads compose in l2 only, not into {bounds[0].norm.target}")
    total = bounds[0].upper
    for bound in bounds[1:]:
        total = hypotenuse_up(total, bound.upper)
    return _composed(bounds, total, bounds[0].norm)


def _check(bounds: tuple[Bound, ...], verb: str) -> None:
    if not bounds:
        raise ValueError(f"{verb} needs at least one bound")
    for bound in bounds:
        if not isinstance(bound, Bound):
            raise TypeError(f"{verb} takes bounds, got {type(bound).__name__}")
        if bound.quantity != LIPSCHITZ:
            raise ValueError(f"{verb} composes Lipschitz constants, not {bound!r}")
        if bound.kind == "lower":
            raise ValueError(f"{verb} needs upper bounds; {bound!r} is a measured lower bound")


def _same_norm(bounds: tuple[Bound, ...]) -> None:
    norms = {str(bound.norm) for bound in bounds}
    if len(norms) > 1:
        raise ValueError(f"the bounds must share one norm, got {', '.join(sorted(norms))}")


def _composed(bounds: tuple[Bound, ...], upper: Array, norm: Norm) -> Bound:
    """The composed upper bound; one map alone stays what it was."""
    if len(bounds) == 1:
        return bounds[0]
    return Bound(
        lower=0.0 if isinstance(upper, float) else namespace(upper).zeros_like(upper),
        upper=upper,
        kind="upper",
        norm=norm,
        domain=joined(*(bound.domain for bound in bounds)),
        theorem=tuple(dict.fromkeys(name for bound in bounds for name in bound.theorem)),
        rounding=weakest_rounding(*bounds),
    )
