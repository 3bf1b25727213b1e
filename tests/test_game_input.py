"""What the games refuse, and what they say."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from taut import games

A = [[1.0, -1.0], [-1.0, 1.0]]


@pytest.mark.parametrize(
    ("payoffs", "error", "message"),
    [
        ([1.0, 2.0], ValueError, r"payoffs must be a matrix.*its shape is \(2,\)"),
        (3.0, ValueError, "payoffs must be a matrix"),
        ([[1.0, math.nan]], ValueError, r"row 0, column 1 is nan"),
        ([[1.0], [-math.inf]], ValueError, r"row 1, column 0 is -inf"),
        ([[[0.0]], [[math.inf]]], ValueError, "row 0, column 0 of game 1 is inf"),
        ([[1.0, 2.0], [3.0]], ValueError, "payoffs must be a rectangular array"),
        (np.zeros((0, 2)), ValueError, "leave a player without a strategy"),
        (np.zeros((0, 2, 2)), ValueError, "the batch is empty"),
        ([[1.0 + 2j]], TypeError, "payoffs must hold real numbers"),
        ([["a", "b"]], TypeError, "payoffs"),
        (None, TypeError, "payoffs must be a NumPy"),
        ([[1e305, 0.0]], ValueError, "may overflow: divide them and tau"),
    ],
)
@pytest.mark.parametrize("function", [games.solve, games.certify, lambda a, _: games.anneal(a)])
def test_wrong_payoffs(payoffs, error, message, function):
    with pytest.raises(error, match=message):
        function(payoffs, 1.0)


@pytest.mark.parametrize(
    ("tau", "error", "message"),
    [
        (0.0, ValueError, "tau must be a finite number > 0, got 0.0; .*taut.games.anneal"),
        (-1.0, ValueError, "taut.games.anneal"),
        (math.nan, ValueError, "got nan"),
        (math.inf, ValueError, "got inf"),
        ("warm", TypeError, "tau must be a plain number"),
        (None, TypeError, "tau must be a plain number"),
        ([1.0, 2.0], ValueError, r"tau of shape \(2,\) does not fit a batch of shape \(\)"),
    ],
)
def test_wrong_temperatures(tau, error, message):
    for function in (games.solve, games.certify):
        with pytest.raises(error, match=message):
            function(A, tau if not isinstance(tau, list) else np.array(tau))


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "simplex"}, ValueError, "method must be one of auto, dsfp, predictive, newton"),
        ({"tolerance": 0.0}, ValueError, "tolerance must be a finite number > 0"),
        ({"tolerance": math.nan}, ValueError, "tolerance"),
        ({"max_iterations": -1}, ValueError, "max_iterations must be at least 0"),
        ({"max_iterations": 1.5}, TypeError, "max_iterations must be an int"),
        ({"method": "dsfp", "damping": 0.0}, ValueError, r"damping must be in \(0, 1\]"),
        ({"damping": 0.5}, ValueError, "damping belongs to method='dsfp'"),
        ({"start": [0.3, 0.3]}, ValueError, "probabilities that sum to 1"),
        ({"start": [1.5, -0.5]}, ValueError, "probabilities that sum to 1"),
        ({"start": [0.5, 0.5, 0.0]}, ValueError, r"start has shape \(3,\)"),
    ],
)
def test_wrong_options(options, error, message):
    with pytest.raises(error, match=message):
        games.solve(A, 1.0, **options)


def test_certificates_refuse_nonsense():
    certificate = games.certify(A, 2.0)
    with pytest.raises(ValueError, match="gap must be a number > 0"):
        certificate.iterations(0.0)
    with pytest.raises(ValueError, match="'dsfp' or 'predictive'"):
        certificate.iterations(1e-3, method="newton")
    with pytest.raises(ValueError, match="p must be in"):
        games.certify(A, 2.0, p=0.5)
    with pytest.raises(ValueError, match="tolerance"):
        games.anneal(A, tolerance=-1.0)
    with pytest.raises(ValueError, match="max_iterations"):
        games.anneal(A, max_iterations=0)


def test_input_is_left_alone():
    payoffs = 1e9 + np.random.default_rng(0).normal(size=(4, 5))
    payoffs.setflags(write=False)
    before = payoffs.copy()
    games.solve(payoffs, 0.1)
    games.anneal(payoffs)
    np.testing.assert_array_equal(payoffs, before)


def test_any_memory_layout_gives_the_same_answer():
    base = np.random.default_rng(0).normal(size=(6, 9))
    expected = games.solve(base.copy(), 0.2)
    for layout in (np.asfortranarray(base), base[::-1][::-1], np.repeat(base, 2, axis=1)[:, ::2]):
        found = games.solve(layout, 0.2)
        np.testing.assert_allclose(found.x, expected.x, atol=1e-9)
        assert found.iterations == expected.iterations


def test_integers_and_lists_are_numbers():
    assert games.solve([[0, 1], [1, 0]], 1).x.dtype == np.float64
    assert games.solve(np.array([[0, 1], [1, 0]], dtype=np.int8), np.float32(1)).converged


def test_an_exception_in_the_callback_is_the_callers():
    def broken(_count, _gap):
        raise RuntimeError("mine")

    with pytest.raises(RuntimeError, match="mine"):
        games.solve(np.random.default_rng(0).normal(size=(4, 4)), 0.01, callback=broken)


def test_solutions_can_be_kept():
    solution = games.solve(A, 0.5)
    again = pickle.loads(pickle.dumps(solution))
    assert again.gap == solution.gap
    assert again.certificate.factor.upper == solution.certificate.factor.upper
