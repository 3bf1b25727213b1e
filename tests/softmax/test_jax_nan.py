"""NaN in arrays so large that XLA's own maximum on CPUs no longer sees it."""

from __future__ import annotations

import math

import numpy as np
import pytest

import taut
from taut._base.reductions import row_max, row_min

INF = math.inf

CALLS = {
    "l1": lambda x: taut.local_lipschitz(x, 1),
    "l2": lambda x: taut.local_lipschitz(x, 2),
    "l3": lambda x: taut.local_lipschitz(x, 3),
    "l1 to l2": lambda x: taut.local_lipschitz(x, 1, 2),
    "negative scale": lambda x: taut.local_lipschitz(x, 2, scale=-1.0),
    "box, l1": lambda x: taut.local_lipschitz(x, 1, radius=0.1),
    "box, l2": lambda x: taut.local_lipschitz(x, 2, radius=0.1),
    "box, l3": lambda x: taut.local_lipschitz(x, 3, radius=0.1),
    "intervals": lambda x: taut.probability_intervals(x, 0.1),
}


@pytest.fixture
def x():
    values = np.random.default_rng(0).normal(size=(8, 512)).astype(np.float32)
    values[3, 7] = math.nan
    return values


def test_extremes_keep_nan(jax, x):
    whole = np.isnan(x).any(-1)
    for find in (row_max, row_min):
        for values in (x, jax.numpy.asarray(x)):
            np.testing.assert_array_equal(np.isnan(find(values)), whole)
            np.testing.assert_array_equal(np.isnan(find(values, keepdims=True))[:, 0], whole)


@pytest.mark.parametrize("name", CALLS)
def test_nan_is_refused_outside_of_jit_and_nan_under_it(jax, x, name):
    call = CALLS[name]
    with pytest.raises(ValueError, match="x contains NaN"):
        call(jax.numpy.asarray(x))
    upper = jax.jit(lambda v: call(v).upper)(x)
    np.testing.assert_array_equal(np.isnan(upper.reshape(8, -1)).any(-1), np.isnan(x).any(-1))


@pytest.mark.parametrize(
    "call", [taut.softmax, taut.log_softmax, taut.logsumexp, taut.worst_direction]
)
def test_nan_is_refused_by_other_functions(jax, x, call):
    with pytest.raises(ValueError, match="x contains NaN"):
        call(jax.numpy.asarray(x))


@pytest.mark.parametrize("pair", [(1, 1), (2, 2), (3, 3), (INF, INF), (1, 2), (2, INF)])
@pytest.mark.parametrize("bad", [math.nan, INF])
def test_what_is_unknown_has_no_worst_direction(jax, x, pair, bad):
    x[3, 7] = bad
    found = jax.jit(lambda v: taut.worst_direction(v, *pair))(x)
    np.testing.assert_array_equal(np.isnan(found).all(-1), ~np.isfinite(x).all(-1))


def test_the_worst_of_a_batch_is_nan(jax):
    rows = np.random.default_rng(1).normal(size=(6000, 4)).astype(np.float32)
    rows[17, 2] = math.nan
    assert np.isnan(jax.jit(lambda v: taut.local_lipschitz(v).max().upper)(rows))


def test_a_matrix_with_nan_is_refused(jax):
    matrix = np.ones((80, 80), np.float32)
    matrix[2, 3] = math.nan
    with pytest.raises(ValueError, match="matrix must be finite"):
        taut.logsumexp_smoothness(matrix=jax.numpy.asarray(matrix))
