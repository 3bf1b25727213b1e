"""Outward rounding and norms of matrices, against exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from taut._base.matrix_norm import (
    frobenius,
    largest_eigenvalues,
    lengths,
    matrix_norm,
    spectral,
    spectral_norms,
    spectral_of_product,
    spectral_of_stack,
)
from taut._base.rounding import down, enlarged, hypotenuse, over, plus, root, times, up

SIZES = st.floats(0.0, 1e308, allow_subnormal=True)
BEYOND = Fraction(10) ** 1000


def exact(x) -> Fraction:
    value = float(np.asarray(x).reshape(()))
    return BEYOND if math.isinf(value) else Fraction(value)


@pytest.mark.parametrize("kind", [float, np.asarray])
@given(a=SIZES, b=SIZES, c=SIZES)
def test_no_operation_is_below_the_exact_one(kind, a, b, c):
    x, y, z = map(kind, (a, b, c))
    a, b, c = map(Fraction, (a, b, c))
    assert exact(times(x, y, z)) >= a * b * c
    assert exact(plus(x, y, z)) >= a + b + c
    assert exact(root(x)) ** 2 >= a
    assert exact(hypotenuse(x, y, z)) ** 2 >= a * a + b * b + c * c
    assert exact(enlarged(x, 3)) >= a * (1 + Fraction(3, 2**52))
    if b:
        assert exact(over(x, y)) >= a / b
    assert exact(up(x)) >= a >= exact(down(x))


@given(a=st.floats(1e-100, 1e100), b=st.floats(1e-100, 1e100))
def test_results_are_the_nearest_floats_above(a, b):
    for found, true in (
        (times(a, b), Fraction(a) * Fraction(b)),
        (plus(a, b), Fraction(a) + Fraction(b)),
        (over(a, b), Fraction(a) / Fraction(b)),
    ):
        assert Fraction(math.nextafter(found, 0.0)) < true <= Fraction(found)
    assert root(4.0) == 2.0
    assert hypotenuse(3.0, 4.0) == 5.0


def test_nan_and_infinity():
    assert times(0.0, math.inf) == 0
    assert plus(math.nan, 1.0) == math.inf
    assert over(1.0, 0.0) == over(math.inf, math.inf) == math.inf
    assert down(math.nan) == down(0.0) == 0
    np.testing.assert_array_equal(times(np.array([0.0, 1.0]), np.inf), [0.0, np.inf])
    np.testing.assert_array_equal(over(np.array([0.0, 1.0]), np.array([0.0, 0.0])), np.inf)


@given(a=SIZES, b=SIZES, c=SIZES)
def test_numbers_and_arrays_together(a, b, c):
    """Every operation takes a float beside an array, in either order, and gives an array."""
    array = np.array([b, c])
    for operation in (times, plus, hypotenuse, over, enlarged):
        for first, second in ((a, array), (array, a)):
            if operation is enlarged:
                second = np.minimum(second, 8.0)
            found = operation(first, second)
            assert found.shape == (2,)
            pairs = zip(*np.broadcast_arrays(first, second), strict=True)
            alone = [operation(np.array([x]), np.array([y]))[0] for x, y in pairs]
            np.testing.assert_array_equal(found, alone)
    np.testing.assert_allclose(hypotenuse(3.0, np.array([4.0, 0.0])), [5.0, 3.0], rtol=1e-15)
    assert isinstance(hypotenuse(a, b), float)


def test_products_that_underflow_are_positive():
    assert times(1e-200, 1e-200) > 0
    assert over(5e-324, 2.0) > 0
    assert times(np.array([1e-200]), 1e-200)[0] > 0
    assert over(np.array([5e-324]), 2.0)[0] > 0


def positive_semidefinite(matrix: list[list[Fraction]]) -> bool:
    """By elimination in exact arithmetic."""
    rows = [list(row) for row in matrix]
    for k in range(len(rows)):
        pivot = rows[k][k]
        if pivot < 0 or (pivot == 0 and any(rows[k][k:])):
            return False
        for i in range(k + 1, len(rows)) if pivot else ():
            share = rows[i][k] / pivot
            rows[i] = [x - share * y for x, y in zip(rows[i], rows[k], strict=True)]
    return True


def bounds_norm(bound: float, matrix: list[list[Fraction]]) -> bool:
    """Whether σ ≤ bound: bound²·I − AᵀA has no negative eigenvalue."""
    columns = list(zip(*matrix, strict=True))
    square = Fraction(bound) ** 2
    return positive_semidefinite(
        [
            [(square if i == j else 0) - sum(x * y for x, y in zip(a, b, strict=True))
             for j, b in enumerate(columns)]
            for i, a in enumerate(columns)
        ]
    )  # fmt: skip


def fractions(matrix) -> list[list[Fraction]]:
    return [[Fraction(float(x)) for x in row] for row in matrix]


def product(a, b) -> list[list[Fraction]]:
    columns = list(zip(*b, strict=True))
    return [[sum(x * y for x, y in zip(row, c, strict=True)) for c in columns] for row in a]


@pytest.mark.parametrize("seed", range(40))
def test_spectral_norms_are_never_below_the_exact_ones(seed):
    rng = np.random.default_rng(seed)
    n, m, k = rng.integers(1, 7, size=3)
    a = rng.standard_normal((n, m)) * 10.0 ** rng.integers(-150, 150)
    if seed % 4 == 0:  # of rank one: nothing but rounding separates the singular values from 0
        a = np.outer(rng.standard_normal(n), rng.standard_normal(m))
    b = rng.standard_normal((m, k))
    size = spectral(a)
    assert bounds_norm(size, fractions(a))
    assert not bounds_norm(size * (1 - 1e-9), fractions(a))
    both = spectral_of_product(a, b)
    assert bounds_norm(both, product(fractions(a), fractions(b)))
    assert both <= times(spectral(a), spectral(b), 1 + 1e-12)
    scale = float(rng.uniform(0.1, 3))
    stack = [[Fraction(scale) * x for x in row] for row in fractions(a)] + fractions(a)
    assert bounds_norm(spectral_of_stack([a, a], [scale, 1.0]), stack)


@pytest.mark.parametrize("seed", range(10))
def test_other_norms_are_never_below_the_exact_ones(seed):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((5, 3)) * 10.0 ** rng.integers(-300, 150)
    rows = fractions(a)
    assert Fraction(float(matrix_norm(a, math.inf))) >= max(sum(map(abs, row)) for row in rows)
    assert Fraction(float(matrix_norm(a.T, 1))) >= max(sum(map(abs, row)) for row in rows)
    assert Fraction(frobenius(a)) ** 2 >= sum(x * x for row in rows for x in row)
    for found, row in zip(lengths(a), rows, strict=True):
        assert Fraction(float(found)) ** 2 >= sum(x * x for x in row)
        assert Fraction(float(found)) ** 2 <= sum(x * x for x in row) * (1 + Fraction(1, 10**12))


def test_a_stack_is_bounded_matrix_by_matrix():
    a = np.random.default_rng(0).standard_normal((7, 2, 4, 3))
    found = spectral_norms(a)
    assert found.shape == (7, 2)
    np.testing.assert_allclose(found, np.linalg.svd(a)[1][..., 0], rtol=1e-12)
    assert spectral(np.zeros((3, 2))) == 0
    assert spectral(np.array([[math.nan]])) == spectral(np.array([[math.inf]])) == math.inf


def test_a_trial_that_cannot_be_proved_is_not_returned(monkeypatch):
    """Cholesky decides: an eigenvalue solver that is wrong makes the bound loose, not wrong."""
    matrices = np.stack([np.diag([4.0, 1.0]), np.eye(2)])
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda a: np.ones(a.shape[:-1]))
    found = largest_eigenvalues(matrices)
    assert np.all(found >= [4.0, 1.0])


def test_underflow_in_products_and_stacks():
    a = np.full((1, 1000), 1.5e-162)
    true = 1000 * Fraction(1.5e-162) ** 2
    assert Fraction(spectral_of_product(a, a.T)) >= true
    found = spectral_of_product(a, a.T, np.array([[1e300]]))
    assert (
        true * Fraction(1e300)
        <= Fraction(found)
        <= true * Fraction(1e300) * (1 + Fraction(1, 10**9))
    )
    assert spectral_of_stack([np.full((1000, 1), 3e-162)], [0.8e-162]) > 0
    assert spectral_of_product(np.full((2, 2), 1e200), np.full((2, 2), 1e200)) == math.inf
    large = spectral_of_product(np.full((2, 2), 1e300), np.full((2, 2), 1e-300))
    assert 4 <= large <= 4 * (1 + 1e-12)
    assert spectral_of_product(np.zeros((2, 2)), np.ones((2, 2))) == 0.0
    assert spectral_of_product(np.array([[math.nan]]), np.ones((1, 1))) == math.inf
