"""The softmax: its functions, its Jacobian, and the norms of it, exact and bounded.

What other packages may use is in ``__all__``; users find most of it in :mod:`taut` itself.
"""

from taut._softmax.any_p import interpolate
from taut._softmax.blend import blend, two_class
from taut._softmax.box import Interval, probability_intervals
from taut._softmax.empirical import directions, empirical_lipschitz, step_ratio
from taut._softmax.functions import log_softmax, logsumexp, softmax, softmin
from taut._softmax.inverse import logits
from taut._softmax.jacobian import jacobian, jvp, logsumexp_smoothness
from taut._softmax.lipschitz import global_lipschitz, local_lipschitz, worst_direction, worst_input
from taut._softmax.partition import theta_sides
from taut._softmax.row_sums import row_sums, row_sums_and_constants
from taut._softmax.steps import (
    Regularity,
    bounded_logits_lipschitz,
    entropy_floor,
    regularity,
    step_bound,
)

__all__ = [
    "Interval",
    "Regularity",
    "blend",
    "bounded_logits_lipschitz",
    "directions",
    "empirical_lipschitz",
    "entropy_floor",
    "global_lipschitz",
    "interpolate",
    "jacobian",
    "jvp",
    "local_lipschitz",
    "log_softmax",
    "logits",
    "logsumexp",
    "logsumexp_smoothness",
    "probability_intervals",
    "regularity",
    "row_sums",
    "row_sums_and_constants",
    "softmax",
    "softmin",
    "step_bound",
    "step_ratio",
    "theta_sides",
    "two_class",
    "worst_direction",
    "worst_input",
]
