"""Bad input is refused with what was wrong and what to do; odd input works."""

from __future__ import annotations

import math

import numpy as np
import pytest

import taut

INF, NAN = math.inf, math.nan
LOGIT_FUNCTIONS = (
    taut.softmax,
    taut.softmin,
    taut.log_softmax,
    taut.logsumexp,
    taut.jacobian,
    lambda x, **k: taut.jvp(x, np.zeros_like(np.asarray(x, dtype=float)), **k),
    taut.local_lipschitz,
    lambda x, **k: taut.local_lipschitz(x, 3, **k),
    lambda x, **k: taut.local_lipschitz(x, 1, 2, **k),
    lambda x, **k: taut.local_lipschitz(x, INF, 1, **k),
    lambda x, **k: taut.local_lipschitz(x, 2, radius=0.1, **k),
    taut.worst_direction,
    lambda x, **k: taut.worst_direction(x, 3, **k),
    taut.empirical_lipschitz,
    lambda x, **k: taut.probability_intervals(x, 0.1, **k),
)


@pytest.mark.parametrize("function", LOGIT_FUNCTIONS)
class TestLogits:
    @pytest.mark.parametrize("value", [NAN, INF])
    def test_nan_and_plus_infinity(self, function, value):
        with pytest.raises(ValueError, match=r"x contains (NaN|\+inf); logits must be finite"):
            function(np.array([[0.0, 1.0], [value, 0.0]]))

    def test_empty(self, function):
        with pytest.raises(ValueError, match="no entries along axis -1"):
            function(np.zeros((3, 0)))

    def test_zero_d(self, function):
        with pytest.raises(ValueError, match="at least one axis"):
            function(np.array(1.0))

    def test_wrong_axis(self, function):
        with pytest.raises(ValueError, match="axis 2 is out of range for x of shape"):
            function(np.zeros((2, 2)), axis=2)
        with pytest.raises(TypeError, match="axis must be an int"):
            function(np.zeros((2, 2)), axis=0.5)

    @pytest.mark.parametrize("scale", [NAN, "two", None])
    def test_wrong_scale(self, function, scale):
        with pytest.raises((TypeError, ValueError), match=r"scale must be a (plain|real) number"):
            function(np.zeros(2), scale=scale)

    def test_empty_batch(self, function):
        result = function(np.zeros((0, 3)))
        first = getattr(result, "upper", result)
        first = getattr(first, "lower", first)
        assert first.shape[0] == 0

    def test_read_only_and_strided(self, function):
        base = np.random.default_rng(0).standard_normal((4, 12))
        view = base[:, ::3]
        view.flags.writeable = False
        before = base.copy()
        for strided, packed in ((view, view.copy()), (view[::-1], view[::-1].copy())):
            a, b = function(strided), function(packed)
            a, b = (getattr(r, "upper", r) for r in (a, b))
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-13)
        np.testing.assert_array_equal(base, before)


@pytest.mark.parametrize(
    "x",
    [
        np.zeros(3, dtype=complex),
        np.array(["a", "b"]),
        np.array([None, 1]),
        np.zeros(3, dtype=bool),
        np.zeros(3, dtype=np.longdouble),
    ],
)
def test_no_real_numbers(x):
    with pytest.raises(TypeError, match="must hold real numbers"):
        taut.softmax(x)


@pytest.mark.parametrize("x", ["abc", None, {1.0}, object()])
def test_no_array(x):
    with pytest.raises(TypeError, match="x must be a NumPy, PyTorch, JAX"):
        taut.softmax(x)


def test_ragged_lists():
    with pytest.raises(ValueError, match="rectangular"):
        taut.softmax([[1.0], [1.0, 2.0]])


@pytest.mark.parametrize("p", [0.5, 0, -1, NAN, -INF])
def test_p_below_one(p):
    for call in (
        lambda: taut.global_lipschitz(p),
        lambda: taut.local_lipschitz([0.0], p),
        lambda: taut.worst_direction([0.0], p),
        lambda: taut.worst_input(3, p),
        lambda: taut.empirical_lipschitz([0.0], p),
        lambda: taut.step_bound([0.0], p),
    ):
        with pytest.raises(ValueError, match=r"p must be in \[1, inf\]"):
            call()
    with pytest.raises(TypeError, match="p must be a plain number"):
        taut.global_lipschitz("two")


def test_pairs_without_a_method():
    with pytest.raises(ValueError, match="l2->l1 is not available; available are p = q"):
        taut.local_lipschitz([0.0, 1.0], 2, 1)
    with pytest.raises(ValueError, match="q goes with a single p"):
        taut.local_lipschitz([0.0, 1.0], (1, 2), 1)


@pytest.mark.parametrize("radius", [-0.1, NAN, INF])
def test_radius(radius):
    with pytest.raises(ValueError, match="radius must be a finite number >= 0"):
        taut.local_lipschitz([0.0], radius=radius)
    with pytest.raises(ValueError, match="radius must be a finite number >= 0"):
        taut.probability_intervals([0.0], radius)
    with pytest.raises(TypeError, match="radius must be a plain number"):
        taut.probability_intervals([0.0], "wide")
    with pytest.raises(ValueError, match="same norm on both sides"):
        taut.local_lipschitz([0.0, 1.0], 1, INF, radius=0.1)


def test_infinite_scale_where_it_has_no_meaning():
    for call in (
        lambda: taut.local_lipschitz([0.0], scale=INF),
        lambda: taut.jacobian([0.0], scale=-INF),
        lambda: taut.jvp([0.0], [0.0], scale=INF),
        lambda: taut.global_lipschitz(scale=INF),
        lambda: taut.logits([1.0], scale=INF),
        lambda: taut.step_bound([1.0], scale=INF),
        lambda: taut.regularity(INF),
        lambda: taut.empirical_lipschitz([1.0], scale=INF),
        lambda: taut.probability_intervals([1.0], 1.0, scale=INF),
    ):
        with pytest.raises(ValueError, match="scale must be finite here"):
            call()
    with pytest.raises(ValueError, match="scale must not be 0 here"):
        taut.logsumexp([0.0], scale=0)


def test_the_rest_of_the_arguments():
    cases = (
        (lambda: taut.worst_input(1), "n must be at least 2"),
        (lambda: taut.worst_input(3, within=0.6), "within must be in"),
        (lambda: taut.global_lipschitz(n=0), "n must be at least 1"),
        (lambda: taut.empirical_lipschitz([0.0], epsilon=0), "epsilon must be a finite number > 0"),
        (lambda: taut.empirical_lipschitz([0.0], samples=0), "samples must be at least 1"),
        (lambda: taut.empirical_lipschitz([0.0], along="up"), "along must be"),
        (lambda: taut.blend([], []), "at least one"),
        (lambda: taut.blend([[0.0]], [1.0, 2.0]), "as many weights as inputs"),
        (lambda: taut.blend([[0.0], [0.0, 1.0]], [1.0, 2.0]), "inputs must have one shape"),
        (lambda: taut.blend([[0.0, -INF]], [-1.0]), "divides by a probability of 0"),
        (lambda: taut.blend([[0.0, NAN]], [1.0]), r"inputs\[0\] contains NaN"),
        (lambda: taut.logits([0.5, 0.6]), "must sum to 1"),
        (lambda: taut.logits([-0.5, 1.5]), "negative entry or NaN"),
        (lambda: taut.logits([NAN, 1.0]), "negative entry or NaN"),
        (lambda: taut.logits([0.5, 0.5], fix="median"), "fix must be"),
        (lambda: taut.logits([0.5, 0.5], fix=2), "not an index"),
        (lambda: taut.logits([0.0, 1.0], fix=0), "probability at index 0 is 0"),
        (lambda: taut.logits([0.5, 0.5], value=NAN), "value must be finite"),
        (lambda: taut.logits([0.5, 0.5], scale=0), "do not determine the logits"),
        (lambda: taut.blend([[0.0]], [INF]), r"weights\[0\] must be finite"),
        (lambda: taut.worst_input(4, 1, scale=1e-310), "the logits overflow"),
        (lambda: taut.regularity(1e-310), "overflows"),
        (lambda: taut.empirical_lipschitz([0.0], seed=-1), "seed must be at least 0"),
        (lambda: taut.jvp([0.0, 1.0], [0.0]), "as many entries"),
        (lambda: taut.step_bound([0.0, INF]), "d must be finite"),
        (lambda: taut.regularity(-1.0), "scale must be positive"),
        (lambda: taut.bounded_logits_lipschitz(1, spread=1.0), "n must be at least 2"),
        (lambda: taut.bounded_logits_lipschitz(3, spread=-1.0), "spread must be"),
        (lambda: taut.entropy_floor(1, logit_norm=1.0), "n must be at least 2"),
        (lambda: taut.entropy_floor(3, logit_norm=NAN), "logit_norm must be"),
        (lambda: taut.logsumexp_smoothness([[NAN]]), "matrix must be finite"),
        (lambda: taut.logsumexp_smoothness([1.0]), "two axes"),
    )
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()


def test_unknown_theorem():
    with pytest.raises(KeyError, match="the known ids are shift"):
        taut.theorems.get("riemann")


def test_numbers_must_be_plain_numbers(torch, jax):
    x = [0.0, 1.0]
    calls = (
        lambda: taut.local_lipschitz(x, "2"),
        lambda: taut.softmax(x, scale="1"),
        lambda: taut.local_lipschitz(x, radius="1"),
        lambda: taut.softmax(x, scale=torch.tensor(2.0, requires_grad=True)),
        lambda: jax.jit(lambda s: taut.softmax(jax.numpy.zeros(2), scale=s))(2.0),
        lambda: taut.empirical_lipschitz(x, epsilon="a"),
        lambda: taut.logits([0.5, 0.5], value="a"),
        lambda: taut.blend([x], ["a"]),
        lambda: taut.global_lipschitz(n=2.5),
        lambda: taut.worst_input("3"),
        lambda: taut.empirical_lipschitz(x, samples=2.5),
        lambda: taut.entropy_floor("8", logit_norm=2),
    )
    for call in calls:
        with pytest.raises(TypeError, match=r"must be (a plain number|an int)"):
            call()


def test_numpy_integers_are_integers():
    x = np.zeros((2, 3))
    assert taut.softmax(x, axis=np.int64(0)).shape == (2, 3)
    assert taut.logits([0.5, 0.5], fix=np.int64(0))[0] == 0
    assert taut.local_lipschitz(x, np.float32(2)).shape == (2,)


def test_masked_arrays_are_refused():
    with pytest.raises(TypeError, match="fill masked logits with -inf"):
        taut.softmax(np.ma.array([1.0, 2.0], mask=[0, 1]))


def test_two_libraries_do_not_mix(torch):
    x, v = torch.zeros(3), np.zeros(3)
    for call in (
        lambda: taut.jvp(x, v),
        lambda: taut.blend([x, v], [1.0, 1.0]),
        lambda: taut.two_class(x, v),
    ):
        with pytest.raises(TypeError, match="must be arrays of one library"):
            call()
    assert type(taut.two_class(0.0, torch.ones(3))) is torch.Tensor


def test_plus_infinity_is_no_mask_for_softmin():
    with pytest.raises(ValueError, match="x contains"):
        taut.local_lipschitz([INF, 0.0, 1.0], scale=-1.0)


def test_scales_beyond_float32_are_refused_where_nothing_else_exists(jax):
    x = jax.numpy.zeros(2)
    for scale in (1e-42, 1e39):
        with pytest.raises(ValueError, match="too extreme for float32"):
            taut.local_lipschitz(x, scale=scale)
    with pytest.raises(ValueError, match="too extreme for float32"):
        taut.local_lipschitz(x) * 1e-42


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_directions_must_be_finite(backend, value):
    x, v = backend.array([0.0, 1.0]), backend.array([1.0, value])
    with pytest.raises(ValueError, match="v must be finite: it is a direction"):
        taut.jvp(x, v)
