"""Integers that floats do not hold are refused wherever they come in."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

import taut
from taut import attention, games

BIG = 2**53 + 1
REFUSED = "cannot hold exactly: subtract a constant from each row"


@pytest.mark.parametrize(
    "x",
    [
        [BIG, BIG + 2],
        [BIG, 0.5],
        [2**63, -1, BIG],
        [2**64 + 1, 0],
        [10**400, 0],
        [[1, 2], [BIG, 3]],
        np.array([BIG, BIG + 2]),
        np.array([2**63 - 1, 0]),
        np.array([2**64 - 1, 0], dtype=np.uint64),
        np.array([-(2**63) + 1, 0]),
    ],
)
def test_integers_that_would_be_rounded(x):
    for function in (
        taut.softmax,
        taut.local_lipschitz,
        taut.logsumexp,
        lambda v: taut.jvp(np.zeros(np.shape(np.array(v, dtype=object))), v),
        lambda v: taut.probability_intervals(v, 0.1),
        taut.step_bound,
        taut.upper_bound,
        lambda v: games.policy_sensitivity(v, scale=1.0),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            function(x)


@pytest.mark.parametrize(
    "x",
    [
        [2**53, 0],
        [2**60, 2**60 + 256],
        [2**64, 0],
        [-(2**63), 2**53],
        [2**53, 0.5],
        np.array([2**63, 1], dtype=np.uint64),
        np.array([-(2**31), 2**31 - 1], dtype=np.int32),
    ],
)
def test_integers_that_floats_hold(x):
    expected = np.array([float(v) for v in np.asarray(x, dtype=object)])
    np.testing.assert_array_equal(taut.softmax(x), taut.softmax(expected))


def test_other_libraries(torch, jax):
    strict = pytest.importorskip("array_api_strict")
    for x in (
        torch.tensor([BIG, BIG + 2]),
        strict.asarray([BIG, BIG + 2]),
        jax.numpy.asarray([2**24 + 1, 2**24 + 3]),  # int32 and float32
        jax.numpy.asarray([2**32 - 1, 0], dtype="uint32"),
    ):
        with pytest.raises(ValueError, match=REFUSED):
            taut.local_lipschitz(x)
    for x in (
        torch.tensor([2**53, 2**53 + 2]),
        strict.asarray([2**53, 2**53 + 2]),
        jax.numpy.asarray([2**24, 2**24 + 2]),
    ):
        assert float(taut.local_lipschitz(x, 1).upper) == pytest.approx(0.20998717, rel=1e-5)
    with jax.enable_x64(True), pytest.raises(ValueError, match="float64 cannot hold exactly"):
        taut.softmax(jax.numpy.asarray([BIG, 0]))
    with pytest.raises(ValueError, match=REFUSED):
        taut.softmax(torch.tensor([2**63 - 1, 0]))


def test_traced_integers(torch, jax):
    """Values are not known: a dtype passes only if everything in it fits."""
    with pytest.raises(TypeError, match="convert it to floats before"):
        jax.jit(taut.softmax)(jax.numpy.asarray([0, 1]))
    with pytest.raises(TypeError, match="convert it to floats before"):
        torch.func.vmap(taut.softmax)(torch.tensor([[0, 1]]))
    expected = taut.softmax([0.0, 1.0])
    found = jax.jit(taut.softmax)(jax.numpy.asarray([0, 1], dtype="int16"))
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    found = torch.func.vmap(taut.softmax)(torch.tensor([[0, 1]], dtype=torch.int32))
    np.testing.assert_allclose(found[0], expected, rtol=1e-12)


def test_attention_and_games():
    with pytest.raises(ValueError, match="cannot hold exactly"):
        attention.affinity([[BIG, 0], [1, 2]])
    with pytest.raises(ValueError, match="cannot hold exactly"):
        games.solve([[BIG, 0], [1, 2]], temperature=1.0)
    with pytest.raises(ValueError, match="cannot hold exactly"):
        games.solve([[1, 0], [1, 2]], temperature=BIG)
    with pytest.raises(ValueError, match="cannot hold exactly"):
        games.largest_scale(1.0, [[BIG, 0]])


def test_numbers():
    for value in (BIG, Fraction(1, 3), Decimal("0.1"), np.int64(BIG)):
        for call in (
            lambda v: taut.softmax([0.0, 1.0], scale=v),
            lambda v: taut.global_lipschitz(scale=v),
            lambda v: taut.probability_intervals([0.0, 1.0], v),
            lambda v: taut.two_class(v, [0.0, 1.0]) if isinstance(v, int) else taut.regularity(v),
        ):
            with pytest.raises(ValueError, match="cannot hold exactly: round it first"):
                call(value)
    with pytest.raises(ValueError, match="beyond the range of a float"):
        taut.softmax([0.0, 1.0], scale=10**400)
    for value in (2**53, Fraction(1, 4), Decimal("0.5"), np.float32(0.1), 2**60):
        assert taut.global_lipschitz(scale=value).upper == float(value) / 2
    assert math.isnan(float(Decimal("nan")))
    with pytest.raises(ValueError, match="must be a real number, got nan"):
        taut.global_lipschitz(scale=Decimal("nan"))
