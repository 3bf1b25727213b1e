"""The same equilibria from other packages: pygambit, OpenSpiel, Nashpy."""

from __future__ import annotations

import numpy as np
import pytest

from taut import games
from tests.helpers.game_peers import (
    duality_gap,
    nashpy_play,
    nashpy_program,
    openspiel_descent,
    pygambit_logit,
)


def gaussian(n, m=None, seed=0):
    return np.random.default_rng(seed).normal(size=(n, m or n))


@pytest.mark.parametrize("size", [(2, 2), (3, 5), (10, 8), (20, 20)])
@pytest.mark.parametrize("relative", [0.3, 0.1, 0.03])
def test_pygambit_finds_the_same_equilibria(size, relative):
    pytest.importorskip("pygambit")
    A = gaussian(*size)
    tau = relative * np.ptp(A)
    x, y = pygambit_logit(A, tau)
    solution = games.solve(A, tau, tolerance=1e-16)
    np.testing.assert_allclose(solution.x, x, atol=1e-8)
    np.testing.assert_allclose(solution.y, y, atol=1e-8)


@pytest.mark.parametrize("seed", range(25))
def test_pygambit_follows_the_same_branch(seed):
    """General-sum games without symmetry; at a pitchfork pygambit leaves the symmetric branch."""
    pytest.importorskip("pygambit")
    rng = np.random.default_rng(seed)
    n, m = rng.integers(2, 7, size=2)
    A, B = rng.uniform(size=(2, n, m))
    tau = 1 / rng.uniform(2, 60)
    x, y = pygambit_logit(A, tau, column=B)
    answer = games.logit_equilibrium(A, B, tau)
    np.testing.assert_allclose(answer.x, x, atol=1e-6)
    np.testing.assert_allclose(answer.y, y, atol=1e-6)


def test_openspiel_descends_to_the_same_equilibrium():
    pytest.importorskip("open_spiel")
    A = gaussian(5, 4)
    tau = 0.2 * np.ptp(A)
    x, y = openspiel_descent(A, tau, gap=1e-9 * tau)
    assert duality_gap(A, tau, x, y) <= 1e-9 * tau
    solution = games.solve(A, tau)
    np.testing.assert_allclose(solution.x, x, atol=1e-4)
    np.testing.assert_allclose(solution.y, y, atol=1e-4)


def test_nashpy_plays_towards_the_same_equilibrium():
    """Its only logit method is a simulation, right to sampling error."""
    pytest.importorskip("nashpy")
    A = gaussian(3)
    x, y = nashpy_play(A, 0.5, iterations=20_000)
    solution = games.solve(A, 0.5)
    np.testing.assert_allclose(solution.x, x, atol=0.03)
    np.testing.assert_allclose(solution.y, y, atol=0.03)


def test_annealing_reaches_the_value_of_nashpys_linear_program():
    pytest.importorskip("nashpy")
    for seed in range(5):
        A = gaussian(6, 5, seed)
        x, y = nashpy_program(A)
        nash = games.anneal(A, tolerance=1e-8)
        assert nash.converged
        assert nash.lower - 1e-9 <= x @ A @ y <= nash.upper + 1e-9


def test_games_of_other_packages_are_read():
    pygambit, nashpy = pytest.importorskip("pygambit"), pytest.importorskip("nashpy")
    A = gaussian(3)
    make = getattr(pygambit, "StrategicGame", pygambit.Game).from_arrays
    for game in (make(-A, A), nashpy.Game(-A, A)):
        read = games.read(game)
        assert read.zero_sum
        np.testing.assert_allclose(games.solve(read.costs, 0.3).x, games.solve(A, 0.3).x, atol=1e-6)
