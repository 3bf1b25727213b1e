"""Sides stay on their sides where numbers underflow, overflow or lose their low bits."""

from __future__ import annotations

import math

import numpy as np
import pytest
from flint import arb, ctx

import taut
from tests.helpers import softmax_oracle as oracle

INF = math.inf


def sides(bound):
    return float(bound.lower), float(bound.upper)


def box_truth(x, radius, scale):
    """Largest 1-constant in the box, from the odds of the top entry in 400 bits."""
    ctx.prec = 2000
    top = max(x)
    rest = list(x)
    rest.remove(top)
    lam = arb(scale)
    tail = sum(((lam * (arb(v) - arb(top))).exp() for v in rest), arb(0))
    distance = abs(tail.log()) - 2 * lam * arb(radius)
    odds = (-distance).exp() if distance > 0 else arb(1)
    return float(lam * 2 * odds / ((1 + odds) * (1 + odds)))


@pytest.mark.parametrize(
    ("x", "radius", "scale"),
    [
        ([0.0, -1000.0], 600.0, 1.0),
        ([0.0, -1000.0], 400.0, 1.0),
        ([0.0, -740.0], 369.0, 1.0),
        ([2.308, -2.0, 1.5127], 20.0, 1000.0),
        ([0.0, -5000.0, -5000.0], 2499.0, 1.0),
        (
            [-10437455.371563168, -30771887.67080771, -30771887.67080771],
            30508.631413343628,
            2.7e-5,
        ),
        ([-465.3177214914651] + [-1233.515065155314] * 3, 0.10970989496745653, 0.7),
    ],
)
def test_wide_boxes_bring_back_what_underflows(x, radius, scale):
    for dtype in (np.float64, np.float32):
        row = np.array(x, dtype=dtype)
        truth = box_truth([float(v) for v in row], radius, scale)
        low, high = sides(taut.local_lipschitz(row, 1, radius=radius, scale=scale))
        assert low <= truth
        assert truth <= high <= truth * 1.01 + 1e-36 * max(1, scale)
        for p in (2, 3):
            assert taut.local_lipschitz(row, p, radius=radius, scale=scale).upper >= truth / 2.1
    low, high = taut.probability_intervals(np.array([0.0, -1000.0]), 600.0)
    assert high[1] > 0.999
    assert low[0] < 1e-80
    low, high = taut.probability_intervals([0.0, -740.0], 369.0)
    exact = 1 / (1 + math.exp(2.0))
    assert low[0] == pytest.approx(1 - exact, rel=1e-11)
    assert high[1] == pytest.approx(exact, rel=1e-11)


@pytest.mark.parametrize(
    ("x", "scale", "dtype"),
    [
        ([1e16 + 2, 1e16], 100.0, "float64"),
        ([1e16 + 2, 1e16, -INF, -INF], 100.0, "float64"),
        ([1e8 + 8, 1e8, 1e8 - 8], 10.2, "float32"),
        ([0.0, -3.4e38, -3.4e38], 1e-30, "float32"),
        ([1e-40, 0.0, -1e-40], 1e30, "float32"),
        ([1.7e308, -1.7e308, 1.7e308 * (1 - 1e-15)], 1e-30, "float64"),
        ([5e-324, 0.0, 1e-310], 1e30, "float64"),
        ([0.0008016445208340883, 0.0008016444626264274, -INF], 1845283576687.142, "float32"),
        (
            [1.6495279754924243e-06, 1.649527975492424e-06] + [-INF] * 68,
            3.722696977662605e24,
            "float64",
        ),
    ],
)
def test_coarse_and_extreme_logits(x, scale, dtype):
    row = np.array(x, dtype=dtype)
    exact = oracle.exact_constants(row, scale, bits=4000)
    for bound, truth in zip(taut.local_lipschitz(row, (1, 2), scale=scale), exact, strict=True):
        assert arb(float(bound.lower)) <= truth
        assert arb(float(bound.upper)) >= truth


def test_steps_that_rounding_changes_are_measured_as_made():
    x = [1e16, 1e16 + 2]
    for epsilon in (1.01, 3.7, 100.0):
        for p in (1, 2, INF):
            measured = taut.empirical_lipschitz(x, p, epsilon=epsilon, along="worst")
            assert measured.lower <= 0.5


def test_corners_stay_in_the_box():
    for row, radius, scale in (
        (np.array([1e16 + 4, 1e16, 1e16 - 2]), 1.1, 1.0),
        (np.array([1e8 + 16, 1e8, 1e8 - 8], np.float32), 4.1, 0.5),
        (np.array([0.0, -303.4613098545832]), 0.1, 1.0),
    ):
        rng = np.random.default_rng(0)
        base = row.astype(np.float64) - row.max()  # exact here
        steps = rng.uniform(-radius, radius, (20_000, len(row)))
        corners = np.array(np.meshgrid(*[[1, -1]] * len(row))).reshape(len(row), -1).T
        steps[: len(corners)] = radius * corners
        inside = taut.local_lipschitz(base + steps, 2, scale=scale).upper.max()
        bound = taut.local_lipschitz(row, 2, radius=radius, scale=scale)
        assert bound.lower <= inside * (1 + 1e-3)
        assert bound.upper >= taut.local_lipschitz(base + steps, 2, scale=scale).lower.max()


def test_scales_that_do_not_fit_float32():
    d = np.array([1e38, -1e38], np.float32)
    for scale in (1e-46, 1e-42, 1e-40):
        truth = 2 * math.tanh(scale * (float(d[0]) - float(d[1])) / 4)  # at x = -d/2
        assert taut.step_bound(d, 1, scale=scale).upper >= truth
    assert taut.logsumexp_smoothness(np.array([[1e-25]], np.float32), scale=1e20).upper > 4.9e-31
    assert taut.logsumexp_smoothness([[1e-170]], scale=1e40).upper > 4.9e-301
    assert taut.logsumexp_smoothness([[1e200]], scale=1e-300).upper < 5.1e99
    scaled = taut.local_lipschitz(np.zeros(2, np.float32), scale=1e30) * 1e-46
    assert 5e-17 <= scaled.upper < 5.1e-17
    assert float(taut.local_lipschitz(np.zeros(2, np.float32), scale=1e39).upper) >= 5e38


def column_truth(x, q, scale):
    """‖J‖_{1→q} in 2000 bits."""
    ctx.prec = 2000
    lam = arb(float(scale))
    weights = [(lam * (arb(float(v)) - arb(float(max(x))))).exp() for v in x]
    total = sum(weights, arb(0))
    s = [w / total for w in weights]
    power = arb(float(q))
    columns = []
    for j, sj in enumerate(s):
        others = [v for i, v in enumerate(s) if i != j]
        rest = sum(others, arb(0))
        inner = rest**power + sum((v**power for v in others), arb(0))
        columns.append(sj * inner ** (1 / power))
    return lam * max(columns, key=lambda c: float(c.log().mid()))


@pytest.mark.parametrize("q", [1.5, 4.0, 10.0, 77.0])
def test_mixed_norms_of_peaked_rows(q):
    rng = np.random.default_rng(0)
    rows = [[0.1, -553.5665489086148], [0.1, -501.3141222427271], [0.0, 0.0]]
    rows += [list(rng.standard_normal(4) * 10 ** rng.uniform(-1, 2)) for _ in range(30)]
    for x in rows:
        truth = column_truth(x, q, 1.1)
        bound = taut.local_lipschitz(x, 1, q, scale=1.1)
        assert arb(float(bound.lower)) <= truth
        assert arb(float(bound.upper)) >= truth


def test_any_p_of_peaked_rows():
    """With two equal small entries the p-norm is known: compare on the far side of underflow."""
    for x in ([0.1, -506.7590786337553], [0.3, -650.1], [0.0, -40.7]):
        ctx.prec = 2000
        for p in (1.3, 3.0, 9.0):
            odds = (arb(1.1) * (arb(x[1]) - arb(x[0]))).exp()
            truth = arb(1.1) * 2 * odds / ((1 + odds) * (1 + odds))  # n = 2: the same for every p
            bound = taut.local_lipschitz(x, p, scale=1.1)
            assert arb(float(bound.lower)) <= truth
            assert arb(float(bound.upper)) >= truth
            tight = taut.local_lipschitz(x, p, scale=1.1, tight=True)
            assert arb(float(tight.upper)) >= truth


def test_powers_in_float32():
    x = np.array([0, -69.89950561523438], np.float32)
    p = 2.1842612193387376
    truth = float(taut.local_lipschitz(x.astype(np.float64), 1))
    assert taut.local_lipschitz(x, p, radius=0.0).upper >= truth
    assert taut.local_lipschitz(x, p, radius=1e-9).upper >= truth


def test_global_constants_are_rounded_outward():
    ctx.prec = 300
    for q in (1.5, 3.0, 5.0, 1e17):
        truth = arb(2) ** (1 / arb(q) - 2)
        bound = taut.global_lipschitz(1, q)
        assert arb(bound.upper) >= truth
        assert arb(bound.lower) <= truth
        dual = taut.global_lipschitz(q, INF)
        truth = arb(2) ** (1 - 1 / arb(q) - 2)
        assert arb(dual.upper) >= truth
        assert arb(dual.lower) <= truth
    assert taut.global_lipschitz(scale=5e-324).upper > 0
    assert taut.logsumexp_smoothness(scale=5e-324).upper > 0
    assert taut.entropy_floor(2, logit_norm=1.7e308).lower == 0


def test_boxes_whose_exponents_overflow():
    for x, radius, scale in (
        ([0.0, -1e300], 1e300, 1e10),
        ([1.7e308, -1.7e308], 1.7e308, 1.0),
        ([0.0, 1.0], 1.7e308, 1.0),
    ):
        for p in (1, 2, 3):
            bound = taut.local_lipschitz(x, p, radius=radius, scale=scale)
            assert bound.upper >= scale / 2 * (1 - 1e-12)
            assert 0 <= bound.lower <= bound.upper
        low, high = taut.probability_intervals(x, radius, scale=scale)
        assert np.all(high > 0.999999)
        assert np.all(low < 1e-6)
    deep = taut.local_lipschitz(np.array([0, -1e30], np.float32), 1, radius=0.1, scale=1e30)
    assert 0 <= deep.lower <= deep.upper <= 1e30


def test_subnormal_numbers_in_jax(jax):
    b = taut.local_lipschitz(jax.numpy.array([0.0, -100.0]), 1)
    truth = float(taut.local_lipschitz([0.0, -100.0], 1))
    assert float((b * 1e30).upper) >= truth * 1e30
    assert float(taut.chain(b, taut.upper_bound(1e30, p=1)).upper) >= truth * 1e30
    tiny = taut.upper_bound(jax.numpy.array(1.1e-38))
    assert float(taut.add(tiny, tiny).upper) >= 2.2e-38
    assert float(taut.heads(tiny, tiny).upper) >= 1.5e-38
    step = taut.step_bound(jax.numpy.array([1e-38, -1e-38]), 1, scale=1e30)
    assert float(step.upper) >= 1e-8


@pytest.mark.parametrize("n", [7, 64, 300])
def test_many_weights_that_xla_flushes_to_zero(jax, n):
    """Each is almost a normal number, and twice their sum is the constant in l1."""
    x = np.full(n, -87.33655, np.float32)
    x[0] = 0.0
    truth = oracle.exact_constants(x)
    for p, exact in ((1, truth[0]), (2, truth[1])):
        upper = jax.jit(lambda x, p=p: taut.local_lipschitz(x, p).upper)(jax.numpy.asarray(x))
        assert arb(float(upper)) >= exact


@pytest.mark.parametrize("depth", [693.0, 693.2, 694.0, 694.9])
def test_weights_that_count_only_together(torch, depth):
    """Each is too small for the derivative, their sum is not: neither value nor gradient is NaN."""
    x = torch.full((7,), -depth, dtype=torch.float64)
    x[0] = 0.0
    plain = taut.local_lipschitz(x, (1, 2))
    x.requires_grad_(True)
    for bound, same in zip(taut.local_lipschitz(x, (1, 2)), plain, strict=True):
        assert bound.lower <= same.value <= bound.upper
        (grad,) = torch.autograd.grad(bound.value, x, retain_graph=True)
        assert torch.isfinite(grad).all()


def test_subnormal_scales_and_steps():
    assert taut.step_bound([1e308, -0.5e308], 1, scale=5e-324).upper >= 3.7e-16
    assert taut.step_bound([1.7e308, -1.7e308], 1, scale=5e-324).upper >= 8e-16
    assert taut.bounded_logits_lipschitz(2, spread=1.0, p=1, scale=5e-324).upper > 0
    with pytest.raises(ValueError, match="too small"):
        taut.empirical_lipschitz([0.0, 0.0], epsilon=5e-324)
    for epsilon in (1e-250, 1e-100):
        for p in (1, 2, 3, INF):
            measured = taut.empirical_lipschitz([0.0, 0.0, 1.0], p, epsilon=epsilon, along="worst")
            assert 0.3 < measured.lower <= 0.5


def test_tight_bound_of_what_underflows():
    for x, scale in (([0.0, -746e-30], 1e30), ([0.0, -745.5, -745.5], 1.0)):
        assert taut.local_lipschitz(x, 3, scale=scale, tight=True).upper >= 2.1e-294 / 1e30 * scale


def test_gradients_next_to_underflow(torch):
    for row in ([0.0, -720.0, -721.0], [0.0, -745.0], [0.0, -1e-310, -1.0]):
        for dtype in (torch.float64, torch.float32):
            for p, q in ((1, 1), (1.5, 1.5), (2, 2), (3, 3), (1, 2), (3, INF), (INF, 1)):
                x = torch.tensor(row, dtype=dtype, requires_grad=True)
                bound = taut.local_lipschitz(x, p, q)
                (grad,) = torch.autograd.grad(bound.lower + bound.upper, x)
                assert torch.isfinite(grad).all(), (row, dtype, p, q)
