"""Verified: what holds of a part of a model, and the certificates that prove it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from taut._base.bound import Bound
from taut._base.domain import Everywhere
from taut._base.matrix_norm import frobenius, spectral
from taut._base.norm import lp
from taut._base.rounding import EPS, hypotenuse, plus, root, times
from taut._base.upper_bound import bounded_above

ALL = Everywhere()


class Verified(NamedTuple):
    """What holds of one part of a model now.

    Attributes
    ----------
    name
        The path of the attention, or the name of the matrix.
    claim
        What is wanted, such as ``"largest singular value at most 1"``.
    holds
        Whether it holds: by the certificates, or where there are none, as measured.
    largest
        The number that the claim is about as it was computed, without outward rounding.
    certificates
        Proofs, each a :class:`taut.Bound` with its norm, domain, theorem and rounding. Empty where
        there is no proof, only the number that was measured.
    head
        Which head, where heads are told apart.
    """

    name: str
    claim: str
    holds: bool
    largest: float
    certificates: tuple[Bound, ...] = ()
    head: int | None = None

    def __str__(self) -> str:
        where = self.name or "the model"
        where += "" if self.head is None else f", head {self.head}"
        return f"{where}: {self.claim}: {'yes' if self.holds else 'no'} ({self.largest:.6g})"


def singular_values(matrix: torch.Tensor) -> tuple[float, float, Bound]:
    """Largest and smallest singular value by SVD in double precision, and a proof of the largest.

    The largest is the Lipschitz constant in l2 of x ↦ Wx (theorem spectral).
    """
    wide = matrix.detach().double().cpu()
    proved = bounded_above(spectral(wide.numpy()), lp(2), ALL, "spectral", rounding="proved")
    if not bool(torch.isfinite(wide).all()):
        return math.nan, math.nan, proved
    values = torch.linalg.svdvals(wide)
    return float(values[0]), float(values[-1]), proved


def orthogonality_certificate(matrix: torch.Tensor, rest: torch.Tensor) -> Bound:
    """√(1 + ‖WᵀW − I‖_F) from above: never below the largest singular value (theorem ortho-cert).

    ``rest`` is the smaller of WᵀW − I and WWᵀ − I, in double precision. Every entry of the product
    is off by at most γ_k(|Wᵀ||W|)ᵢⱼ for sums of k terms in any order, so that all entries together
    are off by at most γ_k‖W‖²_F in the Frobenius norm.
    """
    terms = max(matrix.shape)
    size = frobenius(matrix.detach().cpu().numpy())
    error = times((terms + 2) * EPS, plus(times(size, size), 1.0))  # with that of subtracting I
    off = plus(frobenius(rest.cpu().numpy()), error)
    missing = matrix.shape[1] - len(rest)  # as many squares of 1 are not in the smaller one
    return bounded_above(
        root(plus(1.0, hypotenuse(off, root(float(missing))))),
        lp(2),
        ALL,
        "ortho-cert",
        rounding="proved",
    )
