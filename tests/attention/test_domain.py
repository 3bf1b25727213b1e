"""Domains of attention bounds: what a bound says where it holds, and that it holds there."""

from __future__ import annotations

import numpy as np
import pytest

from taut import At, Ball, attention
from taut.attention import Layer, dot_product, dot_product_ball


def identity(factor: float = 1.0) -> Layer:
    return Layer(factor * np.eye(2), np.eye(2), np.eye(2), scale=1.0)


def inside(rng, ball: Ball) -> np.ndarray:
    x = rng.standard_normal(ball.shape)
    return x / np.linalg.norm(x, axis=1, keepdims=True) * ball.radius


def exact(layer, x, **options) -> float:
    return dot_product(layer, x, exact=True, **options).lower


@pytest.mark.theorem("attn-ball", "holds")
def test_a_context_has_the_tokens_of_its_shape():
    rng = np.random.default_rng(0)
    here, other = Ball(1e-3, shape=(16, 2)), Ball(1e-3, shape=(2, 2))
    for bound in (
        dot_product_ball(identity(), here, context=other),
        dot_product_ball(identity(), Ball(1e-3), n=16, context=other),
        dot_product(identity(), here, context=other),
        dot_product(identity(), inside(rng, here), context=other),
    ):
        assert bound.upper >= exact(identity(), inside(rng, here), context=inside(rng, other))
        assert "n = 2" in str(bound.domain)


@pytest.mark.theorem("attn-ball", "holds")
def test_the_radius_of_a_context_counts():
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((4, 2)), rng.standard_normal((3, 2))
    layer = identity(2.0)
    for domain in (x, At(x), At(x, radius=0.0)):
        bound = dot_product(layer, domain, context=At(y, radius=5.0))
        assert "context" in str(bound.domain)
        for _ in range(100):
            step = rng.standard_normal(y.shape)
            moved = y + 5 * step / np.linalg.norm(step)
            assert bound.upper >= exact(layer, x, context=moved)


@pytest.mark.theorem("attn-ball", "holds")
@pytest.mark.parametrize("factor", [0.5, 1.0, 4.0])
def test_rotations_that_stretch(factor):
    rng = np.random.default_rng(0)
    for _ in range(20):
        x = rng.standard_normal((4, 2)) * 0.3
        turned = np.stack([factor * np.linalg.qr(rng.standard_normal((2, 2)))[0] for _ in range(4)])
        layer = Layer(*rng.standard_normal((3, 2, 2)), bq=rng.standard_normal(2), scale=1.0)
        bound = dot_product(layer, At(x, radius=1e-6), rotations=turned)
        assert bound.upper >= exact(layer, x, rotations=turned)
        ball = Ball(float(np.linalg.norm(x, axis=1).max()) + 1e-9)
        same = dot_product_ball(layer, ball, n=4, rotary=factor * (1 + 1e-9))
        assert same.upper >= exact(layer, x, rotations=turned)


def test_rotations_are_checked_near_tokens():
    x = np.eye(2)
    for wrong in (np.full((1,), np.nan), np.full((2, 2, 2), np.nan), np.zeros((3, 2, 2))):
        with pytest.raises(ValueError, match="rotations"):
            dot_product(identity(), At(x, radius=0.1), rotations=wrong)


def test_conditions_are_said():
    x = np.random.default_rng(0).standard_normal((4, 2))
    seen = np.eye(4, dtype=bool)
    near = dot_product(
        identity(), At(x, radius=0.1), wrt="queries", mask=seen, bias=np.ones((4, 4))
    )
    here = dot_product(identity(), x, wrt="queries", mask=seen, bias=np.ones((4, 4)), context=x)
    for bound in (near, here):
        for words in ("keys and values", "this mask", "this bias"):
            assert words in str(bound.domain)
    assert str(near.domain).startswith("within 0.1 of these inputs")
    assert "this context" in str(here.domain)


@pytest.mark.parametrize(
    ("domain", "options"),
    [
        (Ball(1.0, shape=(16, 2)), {"n": 4}),
        (Ball(1.0, shape=(4, 7)), {}),
        (Ball(1.0, shape=(3, 8, 8)), {}),
        (At(np.ones((4, 3)), radius=0.1), {}),
        (At(np.ones((4, 2)), radius=0.1), {"n": 2}),
        (np.ones((4, 2)), {"n": 2}),
        (Ball(1.0), {}),
    ],
)
def test_tokens_that_do_not_fit(domain, options):
    with pytest.raises(ValueError, match=r"tokens|width|n ="):
        attention.dot_product(identity(), domain, **options)
