"""Norms in which changes of inputs and outputs are measured."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FROBENIUS", "RMS_TOKEN", "TOKEN", "Norm", "lp"]


class Norm(NamedTuple):
    """The norm in which changes of the input and of the output are measured."""

    source: str
    target: str

    def __str__(self) -> str:
        return self.source if self.source == self.target else f"{self.source}->{self.target}"


def lp(p: float, q: float | None = None) -> Norm:
    """Norm l_p, or l_p on the input and l_q on the output.

    >>> import math
    >>> str(lp(2)), str(lp(math.inf, 1))
    ('l2', 'linf->l1')
    """
    pair = (p, p if q is None else q)
    return _USUAL.get(pair) or Norm(*map(_name, pair))


def _name(p: float) -> str:
    """L and the exponent in full: two norms are one norm only if they are exactly the same."""
    return f"l{repr(float(p)).removesuffix('.0')}"


# Writing the names takes longer than computing the constants of a few rows.
_USUAL = {(p, p): Norm(_name(p), _name(p)) for p in (1.0, 2.0, float("inf"))}

FROBENIUS = lp(2)  # l2 over all tokens
TOKEN = Norm("largest token l2", "largest token l2")
RMS_TOKEN = Norm("largest token RMS", "largest token RMS")  # l2 of a token over √width
