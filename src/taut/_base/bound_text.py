"""A bound in words: its numbers, its line, its table for notebooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from taut._base.array import stop_gradient
from taut._base.html_table import html_facts

if TYPE_CHECKING:
    from taut._base.bound import Bound

LIPSCHITZ = "Lipschitz constant"
VALUE = "value"  # of a function, on a set of inputs: the one quantity that may be negative


def text(bound: Bound) -> str:
    """One line: numbers, norm, domain, theorems, and whether the rounding is an estimate."""
    guess = ["rounding estimated"] if bound.rounding == "estimated" else []
    theorem = [", ".join(bound.theorem)] if bound.theorem else []
    ground = "; ".join([*theorem, *guess])
    return f"Bound({numbers(bound)}, {bound.norm}, {bound.domain}; {ground})"


def table(bound: Bound) -> str:
    """The same as a table of HTML."""
    return html_facts(
        [
            ("constant", numbers(bound)),
            ("norm", str(bound.norm)),
            ("domain", str(bound.domain)),
            ("theorem", ", ".join(bound.theorem)),
            ("rounding", bound.rounding),
        ]
    )


def numbers(bound: Bound) -> str:
    """The numbers in six digits, certified sides rounded outward also in print."""
    if bound.shape != ():
        if math.prod(bound.shape) == 0:
            return f"{bound.kind}, shape {bound.shape}"
        return f"{bound.kind}, shape {bound.shape}, largest {numbers(bound.max())}"
    try:
        low, high = float(stop_gradient(bound.lower)), float(stop_gradient(bound.upper))
    except (TypeError, RuntimeError):  # being traced
        return f"{bound.kind}, traced"
    what = "" if bound.quantity == LIPSCHITZ else f"{bound.quantity} "
    if bound.kind == "exact":
        return f"{what}exact {_digits(float(bound), 'ROUND_HALF_EVEN')}"
    if bound.kind == "lower":
        return f"{what}at least {_digits(low, 'ROUND_FLOOR')}"
    if bound.kind == "upper":
        return f"{what}at most {_digits(high, 'ROUND_CEILING')}"
    return f"{what}between {_digits(low, 'ROUND_FLOOR')} and {_digits(high, 'ROUND_CEILING')}"


def _digits(x: float, rounding: str) -> str:
    from decimal import Context  # not at the top: it would slow down `import taut`

    if not math.isfinite(x):
        return str(x)
    return f"{Context(prec=6, rounding=rounding).create_decimal(x).normalize():g}"
