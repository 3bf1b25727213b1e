"""Numbers as text that stays true: an upper bound is rounded up, a lower bound down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

_ROUNDING = {"upper": ROUND_CEILING, "lower": ROUND_FLOOR}
NONE = "–"  # where there is no number


def number_text(value: float, form: str = ".4f", kind: str = "exact") -> str:
    """A number in a format such as ``.4f``, ``.4g`` or ``.1%``; a dash if it is not finite.

    >>> number_text(0.12341, kind="upper"), number_text(0.12349, kind="lower")
    ('0.1235', '0.1234')
    """
    if not math.isfinite(value):
        return NONE
    if kind not in _ROUNDING or form[-1] not in "fg%":
        return format(value, form)
    digits, rounding = int(form[1:-1]), _ROUNDING[kind]
    given = Decimal(str(value))  # the shortest decimal that is this number
    if form[-1] == "g":
        rounded = Context(prec=max(digits, 1), rounding=rounding).create_decimal(given)
        return format(float(rounded), form)
    places = digits + 2 * (form[-1] == "%")
    # Wide enough for every double; rounding to places alone decides.
    rounded = given.quantize(Decimal(1).scaleb(-places), context=Context(400, rounding))
    return format(rounded, form) if form[-1] == "f" else f"{rounded.scaleb(2):.{digits}f}%"


def how_many(number: int, noun: str, plural: str | None = None) -> str:
    """``number`` and ``noun``, in the plural where due."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
