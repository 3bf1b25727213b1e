"""Statements behind the constraints for training."""

from __future__ import annotations

from taut.theorems.entry import Theorem

_CONTROL = "Constraints for training"

CONTROL = (
    Theorem(
        "ortho-gram",
        _CONTROL,
        "‖WᵀW − I_n‖²_F = ‖WWᵀ − I_m‖²_F + (n − m), with the gradient 4W(WᵀW − I_n) = "
        "4(WWᵀ − I_m)W",
        "any matrix W of m rows and n columns",
        "both are Σ(σᵢ² − 1)² over the singular values, and 1 for each that is missing",
        "equality",
        "classical",
    ),
    Theorem(
        "ortho-cert",
        _CONTROL,
        "σ_max(W)² ≤ 1 + ‖WᵀW − I‖_F",
        "any matrix W",
        "σ_max² − 1 is an eigenvalue of WᵀW − I, so at most its Frobenius norm",
        "attained where one singular value differs from 1, from above",
        "taut",
    ),
    Theorem(
        "cap-polynomial",
        _CONTROL,
        "σ_max(W − aW(WᵀW)^k) ≤ μ with a = (Λ − μ)/Λ^(2k+1), and the order of singular values is "
        "kept",
        "any matrix W with σ_max(W) ≤ Λ and μ ≤ Λ ≤ μ(2k + 1)/(2k), k ≥ 1",
        "singular values become σ − aσ^(2k+1), which increases up to Λ as (2k + 1)aΛ^(2k) ≤ 1, and "
        "is μ there",
        "attained at σ_max(W) = Λ",
        "taut",
    ),
    Theorem(
        "cap-drift",
        _CONTROL,
        "σ_max(W) ≤ σ_max(V) + ‖W − V‖_F",
        "any matrices W and V of one shape",
        "the triangle inequality, and no singular value is above the Frobenius norm",
        "attained where W − V has rank one, along the leading singular vectors of V",
        "classical",
    ),
)
