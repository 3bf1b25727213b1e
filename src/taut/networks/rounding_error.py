"""RoundingError: how far rounding moves a result, of the network as executed and of its centre.

Every operation computes its centre in float64 from the centre before it. What it adds to the error
is bounded by an analysis of that operation alone: a sum of n products, in any order and with or
without fused operations, errs by at most γ_n·Σ|products| with γ_n = nu/(1 − nu) and u = EPS/2
(Higham 2002, section 3.1). The docstring of each operation counts its terms. They are multiplied
by EPS = 2u where u would do; the factor 2 pays for γ_n > nu, for the second order of errors of an
operation with several steps, and for rounding of the bounds themselves.

Assumptions: float64 follows IEEE 754 and products of matrices are plain sums of products, which
holds for the BLAS libraries of torch on CPU and GPU; exp, tanh, erf and the like err by at most
four units in the last place, where their vendors promise one or two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from taut._base.rounding import Numbers, plus, times

UNDERFLOW = 1e-300  # more than all products that underflow in one operation add up to
# An estimate of what the operations before one have left of rounding, relative to the longest
# token: generous next to the errors of 1e-12 that were seen.
ESTIMATE = 1e-9


@dataclass(frozen=True)
class RoundingError:
    """Errors in the norm of the certificate, one number for each sample.

    Attributes
    ----------
    executed
        Error of the network in its own precision, to first order.
    centre
        Error of the centre in float64, proved.
    limit
        Largest error, relative to the longest token, that is carried on from the operations
        before: infinite in a proof, :data:`ESTIMATE` in an estimate.
    """

    executed: Numbers
    centre: Numbers
    limit: float = math.inf

    def __add__(self, other: RoundingError) -> RoundingError:
        return RoundingError(
            plus(self.executed, other.executed),
            plus(self.centre, other.centre),
            min(self.limit, other.limit),
        )

    def after(self, carried: Numbers, length: Any) -> Numbers:
        """Error of a centre with tokens of this length, given what is carried on to it."""
        return plus(np.minimum(carried, times(self.limit, length)), self.centre)


EXACT = RoundingError(np.zeros(1), np.zeros(1))
