"""What the games refuse, and what they say."""

from __future__ import annotations

import json
import math
import os
import pickle
import subprocess
import sys

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
        ([[1e305, 0.0]], ValueError, "out of range .*: multiply them and the temperature"),
    ],
)
@pytest.mark.parametrize("function", [games.solve, games.certify, lambda a, _: games.anneal(a)])
def test_wrong_payoffs(payoffs, error, message, function):
    with pytest.raises(error, match=message):
        function(payoffs, 1.0)


@pytest.mark.parametrize(
    ("tau", "error", "message"),
    [
        (0.0, ValueError, "temperature must be a finite number > 0, got 0.0; taut.games.anneal"),
        (-1.0, ValueError, "taut.games.anneal"),
        (math.nan, ValueError, "got nan"),
        (math.inf, ValueError, "got inf"),
        ("warm", TypeError, "temperature must be a plain number"),
        (None, TypeError, "temperature must be a plain number"),
        ([1.0, -2.0], ValueError, "got -2.0; taut.games.anneal lowers the temperature to 0"),
        ([], ValueError, "holds no temperature"),
        (1e-20, ValueError, "out of range for payoffs of size 1: it must be at least 1e-13"),
        (1e200, ValueError, "out of range"),
    ],
)
def test_wrong_temperatures(tau, error, message):
    for function in (games.solve, games.certify):
        with pytest.raises(error, match=message):
            function(A, tau)


def test_temperatures_broadcast():
    sweep = games.solve(A, [0.5, 1.0, 2.0])
    assert sweep.x.shape == (3, 2)
    assert sweep[1].gap == games.solve(A, 1.0).gap
    assert len(sweep) == 3
    grid = games.solve(np.stack([A, A]), np.ones((3, 1)))
    assert grid.x.shape == (3, 2, 2)
    with pytest.raises(ValueError, match=r"shape \(3,\) does not fit payoffs with a batch"):
        games.solve(np.stack([A, A]), [1.0, 2.0, 3.0])
    with pytest.raises(TypeError, match="cannot be indexed"):
        sweep[0][0]
    with pytest.raises(TypeError, match="pick a game"):
        sweep.facts()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"method": "simplex"}, ValueError, "method must be one of auto, dsfp, predictive, newton"),
        ({"tolerance": 0.0}, ValueError, "tolerance must be a finite number > 0"),
        ({"tolerance": math.nan}, ValueError, "tolerance"),
        ({"max_iterations": -1}, ValueError, "max_iterations must be at least 0"),
        ({"max_iterations": 1.5}, TypeError, "max_iterations must be an int"),
        ({"method": "dsfp", "damping": 0.0}, ValueError, r"damping must be in \(0, 1\]"),
        ({"damping": 0.5}, ValueError, "damping is only for method='dsfp'"),
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
        games.anneal(A, max_iterations=-1)
    with pytest.raises(ValueError, match="damping is only for"):
        certificate.iterations(1e-3, method="predictive", damping=0.5)
    with pytest.raises(ValueError, match=r"gap of shape \(2,\) does not fit"):
        certificate.iterations([1e-3, 1e-4])


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


def test_nothing_but_numpy_and_numba_is_needed(tmp_path):
    """Compiled anew without scipy, which numba would use for products if it were asked to."""
    code = (
        "import sys\n"
        "for name in ('scipy', 'torch', 'altair', 'rich', 'pandas'): sys.modules[name] = None\n"
        "from taut import games\n"
        "assert games.solve([[1.0, -1.0], [-1.0, 2.0]], 0.1).converged\n"
        "assert games.anneal([[1.0, -1.0], [-1.0, 2.0]]).converged\n"
        "assert games.logit_equilibrium([[1.0, 0.0]], [[0.0, 1.0]], 0.1).converged\n"
    )
    env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


def test_an_index_means_games(torch):
    batch = np.random.default_rng(0).normal(size=(2, 3, 4, 5))
    for payoffs in (batch, torch.tensor(batch)):
        for answer in (games.solve(payoffs, 0.5), games.anneal(payoffs)):
            for index in (
                0,
                (1, 2),
                (..., 0),
                slice(None, None, -1),
                [1, 0],
                np.array([True, False]),
            ):
                expected = np.asarray(answer.converged)[index].shape
                picked = answer[index]
                assert picked.shape == expected
                assert tuple(picked.x.shape) == (*expected, 4)
            assert "0 of 0" in str(answer[0:0])
    np.testing.assert_array_equal(
        games.solve(batch, 0.5)[..., 0].x, games.solve(batch, 0.5).x[:, 0]
    )


def test_tables_and_other_arrays():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(A, columns=["l", "r"])
    assert games.solve(frame, 0.5).gap == games.solve(A, 0.5).gap
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.asmatrix(A)
    assert games.solve(matrix, 0.5).x.shape == (2,)
    with pytest.raises(TypeError, match="masked array: every pair"):
        games.solve(np.ma.masked_equal(A, 1.0), 0.5)
    nashpy = pytest.importorskip("nashpy")
    with pytest.raises(TypeError, match=r"got a Game; read\(game\).costs"):
        games.solve(nashpy.Game(A), 0.5)
    with pytest.raises(TypeError, match=r"got a Payoffs; read\(game\).costs"):
        games.solve(games.read(nashpy.Game(A)), 0.5)


def test_solutions_become_json():
    for answer in (games.solve(A, [0.5, 2.0]), games.anneal(A), games.logit_equilibrium(A, A, 0.3)):
        text = json.dumps(answer.to_dict(), allow_nan=False)
        assert "theorem" in text or isinstance(answer, games.Annealed)


def test_solutions_can_be_kept():
    solution = games.solve(A, 0.5)
    again = pickle.loads(pickle.dumps(solution))
    assert again.gap == solution.gap
    assert again.certificate.factor.upper == solution.certificate.factor.upper
