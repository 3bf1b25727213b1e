"""All theorems under their ids, and the sources that they name."""

from taut.theorems.attention import ATTENTION
from taut.theorems.control import CONTROL
from taut.theorems.entry import Theorem
from taut.theorems.games import GAMES
from taut.theorems.networks import NETWORKS
from taut.theorems.propagation import PROPAGATION
from taut.theorems.softmax import SOFTMAX

SOURCES = {
    "Newhouse 2025": "L. Newhouse, Softmax is 1/2-Lipschitz (in a norm that may not matter), 2025",
    "Nair 2025": "P. Nair, Softmax is 1/2-Lipschitz: a tight bound across all l_p norms, TMLR 2025",
    "lecture notes": "The softmax function: properties (lecture notes)",
    "softmax note": "Softmax and log-sum-exp (note, 2025)",
    "Zhang et al. 2021": "A. Zhang et al., On orthogonality constraints for transformers, ACL 2021",
    "Castin 2024": "V. Castin, P. Ablin, G. Peyré, How smooth is attention?, ICML 2024",
    "Cen 2021": "S. Cen, Y. Wei, Y. Chi, Fast policy extragradient methods for competitive games "
    "with entropy regularization, NeurIPS 2021",
    "Kim 2021": "H. Kim, G. Papamakarios, A. Mnih, The Lipschitz constant of self-attention, "
    "ICML 2021",
    "Yudin 2025": "N. Yudin et al., Pay attention to attention distribution, arXiv 2507.07814",
    "Zhang et al. 2018": "H. Zhang et al., Efficient neural network robustness certification with "
    "general activation functions, NeurIPS 2018",
    "Zhai 2023": "S. Zhai et al., Stabilizing transformer training by preventing attention entropy "
    "collapse, ICML 2023",
    "classical": "in every textbook; proofs in the theory pages where they are short",
    "taut": "proved in the theory pages of this project",
}

THEOREMS = {
    theorem.id: theorem
    for theorem in (*SOFTMAX, *ATTENTION, *NETWORKS, *PROPAGATION, *CONTROL, *GAMES)
}


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
