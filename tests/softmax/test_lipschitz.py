"""Global and exact local constants: never exceeded, attained, and falsifiable."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import taut
from tests.helpers.softmax_steps import change, dense, rows

INF = math.inf
exponents = st.sampled_from([1.0, 1.01, 1.5, 2.0, 3.0, 8.0, 100.0, INF])


# softmax-lp ---------------------------------------------------------------------------------


@pytest.mark.theorem("softmax-lp", "holds")
@given(rows, exponents, st.floats(-3, 3))
def test_softmax_lp_holds(row, p, scale):
    x, d, size = (np.array(v) for v in row)
    x, d = x * size, d * size
    upper = taut.global_lipschitz(p, scale=scale).upper
    norm = np.linalg.norm(d, p)
    assert np.linalg.norm(change(x, d, scale), p) <= upper * norm * (1 + 1e-12) + 1e-15


@pytest.mark.theorem("softmax-lp", "attained")
@pytest.mark.parametrize("n", [2, 3, 10, 1000])
@pytest.mark.parametrize("p", [1, 1.5, 2, 4, INF])
def test_softmax_lp_is_attained_or_approached(n, p):
    for within in (1e-2, 1e-6, 1e-12):
        x = taut.worst_input(n, p, scale=2.0, within=within)
        local = taut.local_lipschitz(x, p, scale=2.0)
        assert local.lower >= 2 * (0.5 - within) * (1 - 1e-13)
        assert local.upper <= taut.global_lipschitz(p, scale=2.0).upper


@pytest.mark.theorem("softmax-lp", "falsifiable")
@pytest.mark.parametrize("p", [1, 2, 3, INF])
def test_softmax_lp_with_a_smaller_constant_fails(p):
    x = taut.worst_input(5, p)
    v = taut.worst_direction(x, p) * 1e-4
    ratio = np.linalg.norm(change(x, v), p) / np.linalg.norm(v, p)
    assert ratio > 0.99 * taut.global_lipschitz(p).upper


@pytest.mark.theorem("softmax-lp", "derivative")
def test_the_constant_bounds_the_autodiff_jacobian(torch):
    x = torch.randn(50, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    for row in x:
        J = torch.autograd.functional.jacobian(lambda v: torch.softmax(v, -1), row).numpy()
        for p in (1, 2, INF):
            assert np.linalg.norm(J, p) <= taut.global_lipschitz(p).upper


def test_one_logit_has_no_sensitivity():
    assert float(taut.global_lipschitz(n=1)) == 0
    for p in (1, 2, 3, INF):
        assert taut.local_lipschitz([3.0], p).upper < 1e-300


def test_example_1_of_s1():
    """The printed digits drop a 9: the ratio is 0.49999999504436, as 50-digit arithmetic says."""
    from flint import arb, ctx

    ctx.dps = 50
    x = [0.0, 0.0] + [-20.0] * 8
    v = taut.worst_direction(x, 2)
    measured = taut.empirical_lipschitz(x, 2, epsilon=1e-4, along="worst")
    assert measured.lower == pytest.approx(0.49999999504436, abs=2e-14)

    def softmax(z):
        weights = [arb(value).exp() if not isinstance(value, arb) else value.exp() for value in z]
        total = sum(weights, arb(0))
        return [w / total for w in weights]

    step = [arb(1e-4) * arb(float(entry)) for entry in v]
    before, after = (
        softmax([arb(a) for a in x]),
        softmax([arb(a) + b for a, b in zip(x, step, strict=True)]),
    )
    top = sum(((a - b) * (a - b) for a, b in zip(after, before, strict=True)), arb(0)).sqrt()
    ratio = float(top / sum((b * b for b in step), arb(0)).sqrt())
    assert ratio == pytest.approx(0.49999999504436, abs=1e-14)
    assert abs(ratio - 0.4999999504472) > 1e-8


def test_example_2_of_s1_corrected():
    """The paper has ½ − 2δ(1−δ) for this v; it is ½ − δ, because ⟨s, v⟩ = 0."""
    for delta in (1e-1, 1e-3, 1e-6):
        for p in (1.5, 2, 5):
            s = np.array([0.5 - delta, 0.5 - delta] + [2 * delta / 8] * 8)
            v = np.array([1.0, -1.0] + [0.0] * 8) * 2 ** (-1 / p)
            reached = np.linalg.norm(s * (v - s @ v), p)
            assert reached == pytest.approx(0.5 - delta, rel=1e-12)
            local = taut.local_lipschitz(taut.logits(s), p)
            assert reached * (1 - 1e-12) <= local.upper < 0.5


# cocoercive ---------------------------------------------------------------------------------


@pytest.mark.theorem("cocoercive", "holds")
@given(rows, st.floats(0.1, 5))
def test_cocoercive(row, scale):
    x, d, size = (np.array(v) for v in row)
    x, d = x * size, d * size
    moved = change(x, d, scale)
    beta = taut.regularity(scale).cocoercive.lower
    assert moved @ d >= beta * (moved @ moved) - 1e-15 * (1 + size)


@pytest.mark.theorem("cocoercive", "attained")
@pytest.mark.theorem("cocoercive", "falsifiable")
def test_cocoercive_is_tight():
    d = np.array([1e-4, -1e-4])
    moved = change(np.zeros(2), d, 3.0)
    beta = taut.regularity(3.0).cocoercive.upper
    assert moved @ d < 1.01 * beta * (moved @ moved)


def test_ranges_of_scale():
    low, edge, high = (taut.regularity(scale) for scale in (1.9, 2.0, 2.1))
    assert low.contractive
    assert low.firmly_nonexpansive
    assert edge.nonexpansive
    assert not edge.contractive
    assert not high.nonexpansive
    assert not high.firmly_nonexpansive


# local constants ----------------------------------------------------------------------------

points = st.lists(st.floats(-40, 40) | st.just(0.0), min_size=1, max_size=10).map(np.array)


@pytest.mark.theorem("local-1-inf", "holds")
@given(points, st.floats(0, 3))
def test_local_one_and_inf(x, scale):
    J = dense(x, scale)
    one, inf = taut.local_lipschitz(x, (1, INF), scale=scale)
    for bound, order in ((one, 1), (inf, INF)):
        exact = np.linalg.norm(J, order)
        assert bound.lower <= exact * (1 + 1e-13) + 1e-300
        assert exact <= bound.upper * (1 + 1e-13)


@pytest.mark.theorem("local-1-inf", "attained")
@pytest.mark.theorem("local-1-inf", "falsifiable")
def test_local_one_and_inf_directions():
    x = np.random.default_rng(0).standard_normal((20, 7)) * 3
    for p in (1, INF):
        v = taut.worst_direction(x, p)
        reached = np.linalg.norm(taut.jvp(x, v), p, axis=-1)
        assert np.all(np.linalg.norm(v, p, axis=-1) == 1)
        np.testing.assert_allclose(reached, taut.local_lipschitz(x, p).value, rtol=1e-12)
        assert np.all(reached > 0.99 * taut.local_lipschitz(x, p).upper)


@pytest.mark.theorem("local-2", "holds")
@given(points, st.floats(0, 3))
def test_local_two(x, scale):
    exact = np.linalg.eigvalsh(dense(x, scale)).max()
    bound = taut.local_lipschitz(x, 2, scale=scale)
    assert bound.lower <= exact + 1e-15
    assert exact <= bound.upper + 1e-15


@pytest.mark.theorem("local-2", "attained")
@pytest.mark.theorem("local-2", "falsifiable")
@pytest.mark.parametrize("scale", [0.01, 1.0, 10.0, 60.0])
def test_local_two_direction(scale):
    x = np.random.default_rng(0).standard_normal((200, 12)) * scale
    x[:50, 1] = x[:50].max(axis=-1)  # ties
    x[50:60] = 0.0
    v = taut.worst_direction(x)
    np.testing.assert_allclose(np.linalg.norm(v, axis=-1), 1, rtol=1e-14)
    value = taut.local_lipschitz(x).value
    np.testing.assert_allclose(taut.jvp(x, v), value[:, None] * v, atol=1e-15 + 1e-14 * value.max())
    assert np.all(np.linalg.norm(taut.jvp(x, v), axis=-1) > 0.99 * taut.local_lipschitz(x).upper)


@pytest.mark.theorem("local-2-bracket", "holds")
@given(points.filter(lambda x: len(x) > 1))
def test_local_two_bracket(x):
    s = np.sort(taut.softmax(x))[::-1]
    rest = s[1:].sum()  # 1 − s₁
    gap = rest - s[1]  # 1 − s₁ − s₂
    value = taut.local_lipschitz(x, 2)
    # s₁ + s₂ − (s₁ − s₂)², with s₁ + s₂ = 1 − gap and s₁ − s₂ = 1 − gap − 2s₂
    lower = 0.5 * (gap * (1 - gap) + 4 * s[1] * (1 - gap) - 4 * s[1] ** 2)
    assert lower <= value.upper * (1 + 1e-13)
    assert value.lower <= s[0] * (rest + s[1]) * (1 + 1e-13)


@pytest.mark.theorem("local-2-bracket", "attained")
@pytest.mark.theorem("local-2-bracket", "falsifiable")
def test_local_two_bracket_is_attained_for_two():
    s = taut.softmax([1.0, 0.0])
    value = float(taut.local_lipschitz([1.0, 0.0]))
    assert 0.5 * (s.sum() - (s[0] - s[1]) ** 2) == pytest.approx(value, rel=1e-14)
    assert s[0] * (1 - s[0] + s[1]) == pytest.approx(value, rel=1e-14)


def test_sequence_of_exponents_gives_the_same(backend):
    x = backend.array(np.random.default_rng(1).standard_normal((4, 6)))
    together = taut.local_lipschitz(x, (1, 2, 3.0, INF))
    for bound, p in zip(together, (1, 2, 3.0, INF), strict=True):
        np.testing.assert_array_equal(
            backend.numpy(bound.upper), backend.numpy(taut.local_lipschitz(x, p).upper)
        )


def test_negative_scale_is_softmin(backend):
    x = np.random.default_rng(2).standard_normal((3, 5))
    x[0, 2] = -INF
    flipped = np.where(np.isinf(x), x, -x)
    got = taut.local_lipschitz(backend.array(x), (1, 2), scale=-2.0)
    expected = taut.local_lipschitz(flipped, (1, 2), scale=2.0)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(backend.numpy(a.value), b.value, rtol=1e-5)
    assert float(taut.local_lipschitz([1.0, 2.0], scale=0.0)) == 0
