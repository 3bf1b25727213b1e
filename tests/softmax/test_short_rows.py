"""Short rows are worked side by side, long ones along themselves; nobody must be able to tell."""

from __future__ import annotations

import numpy as np
import pytest

import taut

DTYPES = ["float32", "float64"]
LENGTHS = [1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 33, 64, 127, 128]


def rows(n, dtype, count, seed=0):
    """Rows of all scales, with ties, masks and rows that are masked altogether."""
    rng = np.random.default_rng((seed, n))
    x = (rng.standard_normal((count, n)) * np.geomspace(0.01, 300, count)[:, None]).astype(dtype)
    x[::5] = np.round(x[::5])
    x[1::5][rng.random(x[1::5].shape) < 0.4] = -np.inf
    return x


def numbers(x, scale=1.0):
    return np.array(
        [side for b in taut.local_lipschitz(x, (1, 2), scale=scale) for side in sides(b)]
    )


def sides(bound):
    return bound.lower, bound.value, bound.upper


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_a_row_gives_the_same_bits_whatever_stands_beside_it(n, dtype):
    x = rows(n, dtype, 150)
    whole = numbers(x)
    for count in (1, 7, 8, 9, 16, 17, 129):
        np.testing.assert_array_equal(numbers(x[:count]), whole[:, :count])
        np.testing.assert_array_equal(numbers(x[-count:]), whole[:, -count:])


@pytest.mark.parametrize("scale", [1.0, 0.3, 2.7])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", LENGTHS)
def test_as_long_rows_with_masked_entries(n, dtype, scale):
    x = rows(n, dtype, 60, seed=1)
    padded = np.full((60, 300), -np.inf, dtype=dtype)
    padded[:, 100 : 100 + n] = x
    eps, tiny = np.finfo(dtype).eps, 8 * np.finfo(dtype).smallest_subnormal
    np.testing.assert_allclose(numbers(x, scale), numbers(padded, scale), rtol=40 * eps, atol=tiny)


@pytest.mark.parametrize("payload", [0, 1, 2, 255, 2**20 + 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 5, 40, 128, 129, 1000])
def test_nan_is_refused_whatever_its_bits(n, dtype, payload):
    """Bits below the first of a NaN are free, and must not be taken for a power of two."""
    quiet, bits = (0x7FC00000, np.uint32) if dtype == "float32" else (0x7FF8 << 48, np.uint64)
    for place in {0, n // 2, n - 1}:
        for sign in (0, 1 << (np.dtype(dtype).itemsize * 8 - 1)):
            x = np.random.default_rng(n).standard_normal((40, n)).astype(dtype)
            x.view(bits)[17, place] = quiet | payload | sign
            with pytest.raises(ValueError, match="x contains NaN"):
                taut.local_lipschitz(x)
