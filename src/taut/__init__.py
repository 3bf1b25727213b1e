"""taut measures, bounds and controls how sensitive softmax and attention are.

Every constant comes as a :class:`Bound`: ``.lower`` is evidence, ``.upper`` is a guarantee, and
``.theorem`` says why (:mod:`taut.theorems`). Arrays of NumPy, PyTorch and JAX go in and come out.
"""

from typing import TYPE_CHECKING, Any

from taut import theorems
from taut._bound import Bound, Norm, lp, upper_bound
from taut._box import Interval, probability_intervals
from taut._compose import add, chain, heads
from taut._empirical import empirical_lipschitz
from taut._jacobian import jacobian, jvp, logsumexp_smoothness
from taut._lipschitz import global_lipschitz, local_lipschitz, worst_direction, worst_input
from taut._softmax import blend, log_softmax, logits, logsumexp, softmax, softmin, two_class
from taut._steps import (
    Regularity,
    bounded_logits_lipschitz,
    entropy_floor,
    regularity,
    step_bound,
)

if TYPE_CHECKING:
    from taut import attention, audit, control, games, reproduce, sequences, torch

__version__ = "0.1.0"

__all__ = [
    "Bound",
    "Interval",
    "Norm",
    "Regularity",
    "__version__",
    "add",
    "attention",
    "audit",
    "blend",
    "bounded_logits_lipschitz",
    "chain",
    "control",
    "empirical_lipschitz",
    "entropy_floor",
    "games",
    "global_lipschitz",
    "heads",
    "jacobian",
    "jvp",
    "local_lipschitz",
    "log_softmax",
    "logits",
    "logsumexp",
    "logsumexp_smoothness",
    "lp",
    "probability_intervals",
    "regularity",
    "reproduce",
    "sequences",
    "softmax",
    "softmin",
    "step_bound",
    "theorems",
    "torch",
    "two_class",
    "upper_bound",
    "worst_direction",
    "worst_input",
]


def __getattr__(name: str) -> Any:
    """Import these packages on first use: not everybody needs them."""
    if name not in ("attention", "audit", "control", "games", "reproduce", "sequences", "torch"):
        raise AttributeError(f"module 'taut' has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"taut.{name}")
