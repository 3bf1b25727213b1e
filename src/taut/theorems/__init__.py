"""The theorem registry: every statement the library relies on, under one id.

A :class:`taut.Bound` names the theorem that it rests on by its id; :func:`get` looks it up. The
theory page of the documentation is written from this module.

Notation: logits x in R^n, inverse temperature λ > 0, s = softmax(λx) with s₁ ≥ s₂ ≥ …,
M = Diag(s) − ssᵀ, J = λM, osc(u) = max u − min u, 1/p + 1/p′ = 1.
"""

from taut.theorems.entry import Erratum, Theorem
from taut.theorems.errata import ERRATA
from taut.theorems.registry import SOURCES, THEOREMS, get

__all__ = ["ERRATA", "SOURCES", "THEOREMS", "Erratum", "Theorem", "get"]
