"""The exact constants against arbitrary precision, on rows that are hard for floating point.

110,000 cases in all: 11 kinds of rows, two precisions, 5,000 rows each, n from 2 to 4,096; by day
the first 2,000 of each. Every row is checked in the compiled kernel; a share of them also in the
portable code on every backend.
"""

from __future__ import annotations

import numpy as np
import pytest

import taut
from taut._softmax.secular import constants
from tests.helpers import softmax_oracle as oracle

SCALES = (1.0, 0.3, 2.7, 0.125)
ROWS = 1_000  # in each of five parts
PARTS = [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in (2, 3, 4))]


def reference(rows, scale):
    """Exact ‖J‖₁ and ‖J‖₂ as pairs of doubles, shape (rows, 2, 2)."""
    return np.array(
        [[oracle.split(value) for value in oracle.exact_constants(row, scale)] for row in rows]
    )


def depth(row, scale):
    """|λ(x₁ − x₂)|, the digits that the rounding of the logit difference may cost."""
    top = np.sort(row)[::-1][:2].astype(np.float64)
    return scale * (top[0] - top[1]) if len(top) > 1 and np.isfinite(top[1]) else 0.0


def check(bounds, exact, row, scale, unit=4.0, step=1.0):
    """Values within (unit + depth) eps and n subnormal steps; sides on their sides."""
    info = np.finfo(row.dtype)
    floor = len(row) * float(info.smallest_subnormal) * max(1.0, scale) * step
    for bound, (high, low) in zip(bounds, exact, strict=True):
        error = abs((float(bound.value) - high) - low)
        assert error <= (unit + depth(row, scale)) * info.eps * high + floor, (row, scale)
        assert (float(bound.upper) - high) - low >= 0, (row, scale)
        assert (float(bound.lower) - high) - low <= 0, (row, scale)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("category", oracle.CATEGORIES)
def test_constants_against_arbitrary_precision(category, dtype, part):
    scale = SCALES[part % len(SCALES)]
    rows = oracle.hard_rows(category, dtype, ROWS, seed=part)
    exact = reference(rows, scale)
    for row, value in zip(rows, exact, strict=True):
        check(taut.local_lipschitz(row, (1, 2), scale=scale), value, row, scale)
        inf = taut.local_lipschitz(row, np.inf, scale=scale)
        check([inf], value[:1], row, scale)


def portable(x, scale):
    """Bounds through the portable code, whatever the array library."""
    from taut._softmax.sides import exact_sides

    found = constants(x, scale)
    return [
        exact_sides(value, found.relative, found.absolute, scale / 2, ()).bound(taut.lp(2), "")
        for value in (found.one, found.two)
    ]


@pytest.mark.parametrize("category", oracle.CATEGORIES)
def test_portable_code_on_every_backend(backend, category):
    # float64 in JAX has a test of its own, with x64 switched on
    for dtype in ("float32",) if backend.name == "jax" else ("float32", "float64"):
        check_portable(backend, category, dtype)


def few_lengths(rows, lengths=(3, 8)):
    """Rows of some lengths: JAX compiles for each, and keeps that for the next kind of rows."""
    found = [row for row in rows if len(row) in lengths]
    assert found
    return found


def check_portable(backend, category, dtype):
    # XLA flushes subnormal numbers to 0: its unit of underflow is the smallest normal number.
    step = 2.0**23 if backend.name == "jax" else 1.0
    rows = oracle.hard_rows(category, dtype, 30, seed=100)
    with np.errstate(all="ignore"):
        for row in few_lengths(rows) if backend.name == "jax" else rows:
            exact = reference([row], 1.0)[0]
            bounds = portable(backend.array(row, dtype), 1.0)
            check(bounds, exact, row, 1.0, step=step)


@pytest.mark.parametrize(
    "category",
    [
        pytest.param(name, marks=() if name == "masked" else pytest.mark.slow)
        for name in oracle.CATEGORIES
    ],
)
def test_portable_code_in_jax_with_x64(jax, category):
    rows = oracle.hard_rows(category, "float64", 40, seed=101)
    with jax.enable_x64(True):
        for row in few_lengths(rows) if category == "masked" else rows:
            exact = reference([row], 1.0)[0]
            check(portable(jax.numpy.asarray(row), 1.0), exact, row, 1.0, step=2.0**52)


def test_batches_layouts_and_threads_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    for dtype in ("float32", "float64"):
        x = (rng.standard_normal((3, 7, 1500, 65)) * 4).astype(dtype)
        one, two = (b.value for b in taut.local_lipschitz(x, (1, 2)))
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        single = taut.local_lipschitz(x, 2).value
        monkeypatch.setenv("OMP_NUM_THREADS", "3")
        np.testing.assert_array_equal(taut.local_lipschitz(x, 2).value, single)
        monkeypatch.delenv("OMP_NUM_THREADS")
        np.testing.assert_array_equal(two, single)
        # Rows must not depend on their neighbours in a batch by more than rounding.
        for index in ((0, 0, 0), (2, 6, 1499), (1, 3, 777)):
            row = taut.local_lipschitz(x[index], (1, 2))
            assert float(row[0]) == pytest.approx(one[index], rel=4 * float(np.finfo(dtype).eps))
            assert float(row[1]) == pytest.approx(two[index], rel=4 * float(np.finfo(dtype).eps))
        strided = np.moveaxis(x, -1, 0)
        np.testing.assert_array_equal(taut.local_lipschitz(strided, 2, axis=0).value, two)
        np.testing.assert_array_equal(taut.local_lipschitz(x[:, ::2], 2).value, two[:, ::2])
        np.testing.assert_array_equal(
            taut.local_lipschitz(x.astype(x.dtype.newbyteorder())[:1], 2).value, two[:1]
        )


def test_nan_hidden_anywhere_is_found():
    for dtype in ("float32", "float64"):
        for n in (2, 63, 64, 65, 4096):
            for position in (0, n // 2, n - 1):
                for value in (np.nan, np.inf):
                    x = np.zeros((5, n), dtype=dtype)
                    x[3, position] = value
                    with pytest.raises(ValueError, match="x contains"):
                        taut.local_lipschitz(x)


@pytest.mark.parametrize("scale", [1e-300, 1e-31, 1e-29, 1e-3, 1e3, 1e29, 1e31, 1e300])
def test_extreme_scales(scale):
    x = np.array([1.0, 1.0 - 2.0**-40, 0.5, -3.0])
    for row in (x, x / scale if 1e-200 < scale < 1e200 else x):
        exact = [oracle.split(value) for value in oracle.exact_constants(row, scale, bits=2500)]
        bounds = taut.local_lipschitz(row, (1, 2), scale=scale)
        for bound, (high, low) in zip(bounds, exact, strict=True):
            assert (float(bound.upper) - high) - low >= 0
            assert (float(bound.lower) - high) - low <= 0
            assert float(bound.value) == pytest.approx(high, rel=1e-13, abs=1e-300)
