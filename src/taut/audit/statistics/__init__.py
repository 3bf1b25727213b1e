"""What an audit keeps of every head, one statistic a file.

A new statistic is a file with a :class:`~taut.audit.statistics.statistic.Statistic` that says what
is kept of each row and which columns are made of it, and a line in :data:`STATISTICS` here.
"""

from taut.audit.statistics.affinity import Affinity
from taut.audit.statistics.constant_l1 import ConstantL1
from taut.audit.statistics.constant_l2 import ConstantL2
from taut.audit.statistics.constant_p import ConstantP
from taut.audit.statistics.entropy import Entropy
from taut.audit.statistics.key_weights import KeyWeights
from taut.audit.statistics.row_counts import RowCounts
from taut.audit.statistics.score_range import ScoreRange
from taut.audit.statistics.statistic import Statistic
from taut.audit.statistics.theta import Theta

STATISTICS: tuple[Statistic, ...] = (
    ConstantL2(),
    ConstantL1(),
    ConstantP(),
    Entropy(),
    KeyWeights(),
    ScoreRange(),
    Affinity(),
    RowCounts(),
)
THETA = Theta()  # takes longer than the others, and is measured if it is asked for


def optional(*, theta: bool) -> tuple[Statistic, ...]:
    """Statistics that are kept besides ``STATISTICS`` where settings ask for them."""
    return (THETA,) if theta else ()
