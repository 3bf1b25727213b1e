"""Newton's direction in the log domain, by factorisation or by conjugate gradients.

The equilibrium is the root of u − σ̄(−A e^v/τ), v − σ̄(Aᵀe^u/τ), where u and v are log-probabilities
and σ̄ is log-softmax. With residuals a, b and the covariances X, Y of the two strategies a step is

    du = a − A Y dv/τ,    dv = b + AᵀX du/τ,

so (1 + AᵀX A Y/τ²) dv = b + AᵀX a/τ. The matrix is similar to a positive definite one with no
eigenvalue below 1, whatever the game: the step always exists.
"""

from __future__ import annotations

from taut._base.array import Array, eps_of, namespace
from taut.games._solvers.duality_gap import Judged, StrategyPair
from taut.games._solvers.game import Game

DIRECT = 400  # up to this number of strategies of the smaller side a factorisation is cheap
ACCURACY = 1e-4  # of an inexact step: looser ones often fail to lower the gap
PATIENCE = 60  # conjugate gradient steps before a factorisation is worth its price


def direction(
    game: Game, at: StrategyPair, judged: Judged, *, factorise: bool = False
) -> tuple[Array, Array, int]:
    """The step (du, dv) and the products it cost, not counting a factorisation.

    Large games are solved by conjugate gradients unless a factorisation is asked for.
    """
    xp = namespace(at.costs)
    residual_x = judged.answer_x.logs - at.x.logs
    residual_y = judged.answer_y.logs - at.y.logs
    x, y = at.x.weights, at.y.weights
    n, m = game.payoffs.shape[-2:]
    scaled = 1 / game.temperature[:, None]
    if min(n, m) > DIRECT and not factorise:
        found = _by_gradients(game, x, y, residual_x, residual_y)
        if found is not None:
            return found
    if m <= n:
        centred = game.payoffs - at.gains[:, None, :]
        rhs = residual_y + game.to_columns(covariance(x, residual_x)) * scaled
        dv = _solve(centred, x, y, rhs, game.temperature)
        return residual_x - game.to_rows(covariance(y, dv)) * scaled, dv, 2
    centred = xp.matrix_transpose(game.payoffs - at.costs[:, :, None])
    rhs = residual_x - game.to_rows(covariance(y, residual_y)) * scaled
    du = _solve(centred, y, x, rhs, game.temperature)
    return du, residual_y + game.to_columns(covariance(x, du)) * scaled, 2


def covariance(p: Array, w: Array) -> Array:
    """(Diag(p) − ppᵀ) w."""
    return p * (w - namespace(p).sum(p * w, axis=-1, keepdims=True))


def _solve(centred: Array, weights: Array, p: Array, rhs: Array, tau: Array) -> Array:
    """Solve (1 + G P/τ²) w = rhs with G = CᵀDiag(weights)C and the covariance P of p.

    With P = S Sᵀ and z = Sᵀw the system (1 + SᵀGS/τ²) z = Sᵀrhs has no eigenvalue below 1. Where
    the 1 is lost to the rounding of G, as much as that rounding is added; no more, for it would
    slow Newton's method down.
    """
    xp = namespace(rhs)
    root = p**0.5
    scaled = (weights**0.5)[:, :, None] * (centred / tau[:, None, None])
    # S = Diag(√p)(1 − √p√pᵀ); centred columns times S are columns minus their mean under p.
    mean = scaled @ p[:, :, None]
    image = (scaled - mean) * root[:, None, :]
    matrix = xp.matrix_transpose(image) @ image
    size = eps_of(p) * xp.max(xp.max(matrix, axis=-1), axis=-1)[:, None, None]
    identity = xp.eye(p.shape[-1], dtype=p.dtype, device=p.device)
    right = (root * (rhs - xp.sum(p * rhs, axis=-1, keepdims=True)))[..., None]
    try:
        z = xp.linalg.solve(matrix + (1 + size) * identity, right)
    except (ValueError, RuntimeError):  # NumPy's and torch's word for a singular matrix
        enough = 4 * sum(scaled.shape[1:])
        z = xp.linalg.solve(matrix + (1 + enough * size) * identity, right)
    return rhs - (xp.matrix_transpose(scaled) @ (image @ z))[..., 0]


def _by_gradients(
    game: Game, x: Array, y: Array, residual_x: Array, residual_y: Array
) -> tuple[Array, Array, int] | None:
    """The step by conjugate gradients, or None if it would take long.

    With Y = S Sᵀ and z = Sᵀdv the system (1 + SᵀAᵀX A S/τ²) z = Sᵀrhs is symmetric.
    """
    xp = namespace(x)
    scaled = 1 / game.temperature[:, None]
    root = y**0.5

    def dot(a: Array, b: Array) -> Array:
        return xp.sum(a * b, axis=-1, keepdims=True)

    def spread(z: Array) -> Array:  # S z; Sᵀw is root·w − root·⟨y, w⟩
        return root * (z - root * dot(root, z))

    rhs = residual_y + game.to_columns(covariance(x, residual_x)) * scaled
    z, image = xp.zeros_like(rhs), xp.zeros_like(rhs)  # image = AᵀX A S z/τ²
    rest = root * (rhs - dot(y, rhs))
    ahead, size = rest, dot(rest, rest)
    goal = ACCURACY**2 * size
    for steps in range(PATIENCE):
        if not xp.any(size > goal):
            du = residual_x - game.to_rows(spread(z)) * scaled
            return du, rhs - image, 2 * steps + 2
        sent = game.to_columns(covariance(x, game.to_rows(spread(ahead)) * scaled)) * scaled
        bent = ahead + root * (sent - dot(y, sent))
        length = size / xp.maximum(dot(ahead, bent), xp.full_like(size, 1e-300))
        z, image, rest = z + length * ahead, image + length * sent, rest - length * bent
        before, size = size, dot(rest, rest)
        ahead = rest + size / xp.maximum(before, xp.full_like(size, 1e-300)) * ahead
    return None
