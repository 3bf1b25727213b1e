"""Other packages' solvers for matrix games, one function each, for tests and benchmarks.

The row player minimises and the column player maximises xᵀAy; with entropies
x = softmax(−Ay/τ), y = softmax(Aᵀx/τ). Each package is imported inside its function. Seen with
pygambit 17.0.0b2, open_spiel 2.0.2, nashpy 0.0.43 and scipy 1.17.1.
"""

from __future__ import annotations

import io

import numpy as np
from scipy.optimize import linprog
from scipy.special import log_softmax


def duality_gap(A, tau, x, y):
    """τKL(x ‖ softmax(−Ay/τ)) + τKL(y ‖ softmax(Aᵀx/τ)), without cancellation."""

    def divergence(p, log_q):
        q = np.exp(log_q)
        with np.errstate(divide="ignore", invalid="ignore"):
            d = np.log(p) - log_q
            terms = q * ((1 + np.expm1(d)) * d - np.expm1(d))
        return float(np.where(p > 0, terms, q).sum())

    rows, columns = log_softmax(-A @ y / tau), log_softmax(A.T @ x / tau)
    return tau * (divergence(x, rows) + divergence(y, columns))


def gambit_game(row, column):
    """The pygambit game with these payoffs.

    ``from_arrays`` gives the same game, but is much slower from about 20 strategies on.
    """
    import pygambit

    n, m = row.shape
    payoffs = np.stack([row, column], axis=-1).swapaxes(0, 1).ravel()  # row index runs fastest
    head = f'NFG 1 R "" {{ "1" "2" }} {{ {n} {m} }}\n\n'
    return pygambit.read_nfg(io.BytesIO((head + " ".join(map(repr, payoffs.tolist()))).encode()))


def pygambit_solve(game, lam, first_step=0.03, max_accel=1.1):
    """Strategies of both players at λ on the principal branch; the options are the defaults."""
    import pygambit

    (found,) = pygambit.qre.logit_solve_lambda(
        game, lam, first_step=first_step, max_accel=max_accel
    )
    if abs(found.lam - lam) > 1e-6 * max(1.0, lam):  # pygambit gives no status
        raise RuntimeError(f"pygambit stopped at lambda {found.lam:g}, not {lam:g}")
    return np.array([found[i] for i in range(len(found))])


def pygambit_logit(A, tau, column=None):
    """A logit equilibrium; with ``column`` of a general-sum game in which both maximise.

    The payoffs are divided by their spread: on payoffs of 1e4 and more pygambit may never end.
    """
    row, column = (-A, A) if column is None else (A, column)
    scale = max(np.ptp(row), np.ptp(column))
    found = pygambit_solve(gambit_game(row / scale, column / scale), scale / tau)
    return found[: len(A)], found[len(A) :]


def openspiel_descent(A, tau, gap, max_iterations=100_000):
    """OpenSpiel's ADIDAS "qre" solver: descent on the regularised exploitability.

    It drops the entropy below a temperature of 1e-3 and clips payoffs at 0, so they are divided by
    τ and shifted. It has no stopping rule: the gap is looked at every 50 iterations.
    """
    from open_spiel.python.algorithms.adidas_utils.solvers.nonsymmetric import qre

    payoffs = {(0, 1): np.stack([A.max() - A, A - A.min()]) / tau}
    relative = tau / np.ptp(A)
    solver = qre.Solver(temperature=1.0, lrs=(min(2 * relative, 50 * relative**2), 1.0))
    state = solver.init_vars(A.shape, 2)
    for iteration in range(max_iterations):
        gradients, _, _ = solver.compute_gradients(state, payoffs)
        state = solver.update(state, gradients, iteration)
        if iteration % 50 == 49 and duality_gap(A, tau, *state[0]) <= gap:
            return tuple(state[0])
    raise RuntimeError(f"OpenSpiel's qre solver did not reach gap {gap:g}")


def nashpy_play(A, tau, iterations=10_000, seed=0):
    """Nashpy's stochastic fictitious play, its only logit method: a random simulation.

    Its exponentials overflow when payoffs/τ pass 700: payoffs are made non-positive to avoid it.
    """
    import nashpy

    np.random.seed(seed)  # noqa: NPY002  Nashpy draws from NumPy's global generator
    game = nashpy.Game(A.min() - A, A - A.max())
    for counts, _ in game.stochastic_fictitious_play(iterations, etha=tau, epsilon_bar=0.0):
        frequencies = counts
    return tuple(count / iterations for count in frequencies)


def nashpy_program(A):
    """Nashpy's Nash equilibrium by two linear programs."""
    import nashpy

    return nashpy.Game(-A).linear_program()


def scipy_program(A):
    """Nash equilibrium and value by one linear program, y from its duals."""
    n, m = A.shape
    result = linprog(
        np.append(np.zeros(n), 1.0),  # minimise v over (x, v) with Aᵀx ≤ v
        A_ub=np.column_stack([A.T, -np.ones(m)]),
        b_ub=np.zeros(m),
        A_eq=np.append(np.ones(n), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None)],
        method="highs",
    )
    return result.x[:n], -result.ineqlin.marginals, result.fun
