"""The theorem registry: every statement the library relies on, under one id.

A :class:`taut.Bound` names the theorem that it rests on by its id; :func:`get` looks it up. The
theory page of the documentation is written from this module.

Notation: logits x in R^n, inverse temperature λ > 0, s = softmax(λx) with s₁ ≥ s₂ ≥ …,
M = Diag(s) − ssᵀ, J = λM, osc(u) = max u − min u, 1/p + 1/p′ = 1.
"""

from taut.theorems._attention import ATTENTION
from taut.theorems._control import CONTROL
from taut.theorems._entry import Erratum, Theorem
from taut.theorems._errata import ERRATA
from taut.theorems._games import GAMES
from taut.theorems._modules import MODULES
from taut.theorems._softmax import SOFTMAX

__all__ = ["ERRATA", "SOURCES", "THEOREMS", "Erratum", "Theorem", "get"]

SOURCES = {
    "S0": "L. Newhouse, Softmax is 1/2-Lipschitz (in a norm that may not matter), 2025",
    "S1": "P. Nair, Softmax is 1/2-Lipschitz: a tight bound across all l_p norms, TMLR 2025",
    "S2": "The softmax function: properties (lecture notes)",
    "S3": "Softmax and log-sum-exp (note, 2025)",
    "S4": "Orthogonality constraints for transformers in translation and dialogue",
    "Castin 2024": "V. Castin, P. Ablin, G. Peyré, How smooth is attention?, ICML 2024",
    "Cen 2021": "S. Cen, Y. Wei, Y. Chi, Fast policy extragradient methods for competitive games "
    "with entropy regularization, NeurIPS 2021",
    "Kim 2021": "H. Kim, G. Papamakarios, A. Mnih, The Lipschitz constant of self-attention, "
    "ICML 2021",
    "Yudin 2025": "N. Yudin et al., Pay attention to attention distribution, arXiv 2507.07814",
    "Zhai 2023": "S. Zhai et al., Stabilizing transformer training by preventing attention entropy "
    "collapse, ICML 2023",
    "classical": "in every textbook; proofs in the theory pages where they are short",
    "taut": "proved in the theory pages of this project",
}

THEOREMS = {theorem.id: theorem for theorem in (*SOFTMAX, *ATTENTION, *MODULES, *CONTROL, *GAMES)}


def get(theorem_id: str) -> Theorem:
    """Look up a theorem by its id.

    >>> print(get("two-class").statement)
    softmax(z)₁ = 1/(1 + e^{z₂ − z₁})
    """
    try:
        return THEOREMS[theorem_id]
    except KeyError:
        known = ", ".join(THEOREMS)
        raise KeyError(f"no theorem {theorem_id!r}; the known ids are {known}") from None
