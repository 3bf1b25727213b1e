"""The scan: pieces of the projective line of (v_1, d) and the bound on a whole piece (Lemma 7).

F is even and homogeneous, so (v_1, d), d = v_1 - m, matters up to a factor only.  With e = K / s_1
the line is covered by v_1 = 1, |d| <= e * reach and d = e, |v_1| <= 1 / reach.  On a piece (v_1, d)
and nu move affinely between the ends; then dual value + |v_1|^p - nu * target is convex,
nu * target is a quadratic, and |v_1|^p is at least its smaller end value.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from taut._softmax.proved_p.dual import Matrix, Point, Problem
from taut._softmax.proved_p.suprema import Vector

_SLACK = 1e-11  # of all magnitudes, as in the dual value
_MISMATCH = 1e-12  # of the target: the row sums to 1 only within rounding
# an end of a piece: v_1, d, dual value, multiplier nu = p |y|^(p-1) sign(y), y
FIRST, D, VALUE, NU, Y = range(5)


@njit(nogil=True)
def initial_pieces(problem: Problem) -> Matrix:
    """Return pieces[k, end, column] that cover the projective line; VALUE and NU are not set."""
    e = 1.0 / problem.scanned
    reach = min(6.0, max(1.2, 1e3 ** (1.0 / problem.p)))
    # m = 0 at d = v_1, and the border of "the scanned coordinate is inner", are always grid points
    border = min(problem.scanned_excluded * e * (1.0 - 1e-6), 1.0 / reach)
    coarse = [-0.5 * (1.0 + reach), -0.75, 0.0, 0.4, 0.75, 0.9, 1.1, 0.5 * (1.2 + reach)]
    # a little more than reach: the overlap of the two charts absorbs rounding
    beyond = reach * (1.0 + 1e-9)
    near = np.sort(np.array([*coarse, min(problem.scanned, reach), -beyond, beyond]))
    far = np.sort(np.array([-1.0, -border * reach, 0.0, border * reach, min(e * reach, 1.0), 1.0]))
    pieces = np.zeros((near.size + far.size - 2, 2, 5))
    for k in range(pieces.shape[0]):
        for end in range(2):
            if k < near.size - 1:
                pieces[k, end, FIRST], pieces[k, end, D] = 1.0, e * near[k + end]
            else:
                pieces[k, end, FIRST], pieces[k, end, D] = far[k + 1 - near.size + end] / reach, e
    spread = np.sum(problem.weight * problem.ratio ** (problem.p / (problem.p - 1.0)))
    for piece in pieces:  # the multiplier for T = 0 is a good first guess
        for end in range(2):
            target = problem.tail * piece[end, FIRST] - problem.scale * piece[end, D]
            piece[end, Y] = -target / spread
    return pieces


@njit(nogil=True)
def point_on(piece: Matrix, theta: Vector, first: float, d: float) -> Point:
    """Return a point with what holds on its whole piece: least |m|, range of theta * m."""
    m_a, m_b = piece[0, FIRST] - piece[0, D], piece[1, FIRST] - piece[1, D]
    least = min(abs(m_a), abs(m_b)) * (1.0 - 1e-9) if m_a * m_b > 0.0 else 0.0
    low = min(min(theta[0] * m_a, theta[0] * m_b), min(theta[1] * m_a, theta[1] * m_b))
    high = max(max(theta[0] * m_a, theta[0] * m_b), max(theta[1] * m_a, theta[1] * m_b))
    return Point(first, d, least, low - 1e-12 * abs(low), high + 1e-12 * abs(high))


@njit(nogil=True)
def scanned_is_inner(problem: Problem, piece: Matrix) -> bool:
    """Tell whether |v_1| < gamma |d| on all of the piece."""
    d_a, d_b = piece[0, D], piece[1, D]
    least = min(abs(d_a), abs(d_b)) if d_a * d_b > 0.0 else 0.0
    most = max(abs(piece[0, FIRST]), abs(piece[1, FIRST]))
    if problem.scanned_excluded < 1e-6:  # the rounding of v_1 = d + m would count
        return False
    return most < (1.0 - 1e-9) * problem.scanned_excluded * least


@njit(nogil=True)
def piece_bound(problem: Problem, piece: Matrix) -> float:
    """Bound F on the piece from the dual values at its ends."""
    lost_a, lost_b = abs(piece[0, FIRST]) ** problem.p, abs(piece[1, FIRST]) ** problem.p
    a, b = piece[0, VALUE] + lost_a, piece[1, VALUE] + lost_b
    change = problem.tail * (piece[1, FIRST] - piece[0, FIRST])
    change -= problem.scale * (piece[1, D] - piece[0, D])
    largest = problem.tail * max(abs(piece[0, FIRST]), abs(piece[1, FIRST]))
    largest += problem.scale * max(abs(piece[0, D]), abs(piece[1, D]))
    steps = piece[1, NU] - piece[0, NU]
    bulge = (max(0.0, -steps * change) + abs(steps) * _MISMATCH * largest) * (1.0 + 1e-9)
    highest = max(a, b)
    if bulge > abs(b - a):  # the top of a + (b - a) x + bulge x (1 - x) lies inside
        highest = 0.5 * (a + b) + 0.25 * bulge + 0.25 * (b - a) ** 2 / bulge
    slack = _SLACK * (1.0 + bulge + abs(a) + abs(b))
    return highest - min(lost_a, lost_b) + slack
