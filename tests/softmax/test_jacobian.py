"""Theorem jacobian: closed form, product, autodiff and finite differences agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut

vectors = st.lists(st.floats(-30, 30), min_size=1, max_size=7).map(np.array)


@pytest.mark.theorem("jacobian", "holds")
@given(vectors, st.floats(-3, 3))
def test_jacobian_is_symmetric_semidefinite_and_kills_constants(x, scale):
    J = taut.jacobian(x, scale=scale)
    s = taut.softmax(x, scale=scale)
    np.testing.assert_allclose(J, scale * (np.diag(s) - np.outer(s, s)), atol=1e-15)
    np.testing.assert_array_equal(J, J.T)
    np.testing.assert_allclose(J.sum(axis=-1), 0, atol=1e-15)
    assert np.linalg.eigvalsh(J * np.sign(scale or 1)).min() >= -1e-15


@pytest.mark.theorem("jacobian", "derivative")
def test_jacobian_is_the_derivative(torch, jax):
    x = np.array([0.3, -1.0, 2.0, 0.0])
    J = taut.jacobian(x, scale=1.3)
    reverse = torch.autograd.functional.jacobian(
        lambda v: taut.softmax(v, scale=1.3), torch.tensor(x)
    )
    np.testing.assert_allclose(reverse.numpy(), J, rtol=1e-12)
    forward = jax.jacfwd(lambda v: taut.softmax(v, scale=1.3))(jax.numpy.asarray(x))
    np.testing.assert_allclose(np.asarray(forward), J, rtol=2e-5, atol=1e-7)
    h = 1e-6
    columns = [
        (taut.softmax(x + h * e, scale=1.3) - taut.softmax(x - h * e, scale=1.3)) / (2 * h)
        for e in np.eye(4)
    ]
    np.testing.assert_allclose(np.array(columns).T, J, rtol=1e-7, atol=1e-9)


@pytest.mark.theorem("jacobian", "falsifiable")
def test_a_jacobian_off_by_a_percent_would_be_seen():
    x, h = np.array([0.3, -1.0, 2.0]), 1e-6
    column = (taut.softmax(x + [h, 0, 0]) - taut.softmax(x - [h, 0, 0])) / (2 * h)
    assert not np.allclose(0.99 * taut.jacobian(x)[:, 0], column, rtol=1e-3)


def test_peaked_rows_keep_their_digits():
    J = taut.jacobian([0.0, -50.0])
    assert J[0, 0] == pytest.approx(math.exp(-50), rel=1e-14)


def test_jvp_is_the_product(backend):
    rng = np.random.default_rng(0)
    x, v = rng.standard_normal((2, 3, 5))
    got = backend.numpy(taut.jvp(backend.array(x), backend.array(v), scale=-2.0))
    expected = np.einsum("bij,bj->bi", taut.jacobian(x, scale=-2.0), v)
    np.testing.assert_allclose(got, expected, rtol=1e-4 if backend.name == "jax" else 1e-11)


def test_masked_entries_have_zero_rows(backend):
    J = backend.numpy(taut.jacobian(backend.array([0.0, -math.inf, 1.0])))
    assert not J[1].any()
    assert not J[:, 1].any()
