"""taut measures, bounds and controls how sensitive softmax and attention are.

Every constant comes as a :class:`Bound`: ``.lower`` is evidence, ``.upper`` is a guarantee, and
``.theorem`` says why (:mod:`taut.theorems`). Arrays of NumPy, PyTorch and JAX go in and come out.
"""

from typing import TYPE_CHECKING, Any

from taut import theorems
from taut._base.bound import Bound
from taut._base.compose import add, chain, heads
from taut._base.domain import At, Ball, Domain, Everywhere
from taut._base.norm import Norm, lp
from taut._base.upper_bound import upper_bound
from taut._softmax import (
    Interval,
    Regularity,
    blend,
    bounded_logits_lipschitz,
    empirical_lipschitz,
    entropy_floor,
    global_lipschitz,
    jacobian,
    jvp,
    local_lipschitz,
    log_softmax,
    logits,
    logsumexp,
    logsumexp_smoothness,
    probability_intervals,
    regularity,
    softmax,
    softmin,
    step_bound,
    two_class,
    worst_direction,
    worst_input,
)

if TYPE_CHECKING:
    from taut import attention, audit, control, explore, games, models, networks, reproduce

__version__ = "0.1.0"

__all__ = [
    "At",
    "Ball",
    "Bound",
    "Domain",
    "Everywhere",
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
    "explore",
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
    "models",
    "networks",
    "probability_intervals",
    "regularity",
    "reproduce",
    "softmax",
    "softmin",
    "step_bound",
    "theorems",
    "two_class",
    "upper_bound",
    "worst_direction",
    "worst_input",
]


_PACKAGES = (
    "attention", "audit", "control", "explore", "games", "models", "networks", "reproduce",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import these packages on first use: not everybody needs them."""
    if name not in _PACKAGES:
        raise AttributeError(f"module 'taut' has no attribute {name!r}")
    from importlib import import_module

    return import_module(f"taut.{name}")
