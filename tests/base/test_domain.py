"""Domains: text, equality, conditions, composition, and what is refused."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import taut
from taut._base.domain import At, Ball, Described, Everywhere, Restricted, as_domain, joined
from taut.attention import Layer, dot_product, dot_product_ball, jacobian

X = np.array([[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (Everywhere(), "all inputs"),
        (Everywhere((5,)), "all x in R^5"),
        (Everywhere((16, 64)), "all inputs of shape (16, 64)"),
        (Ball(3.0), "tokens of length at most 3"),
        (Ball(2.0, (4, 8)), "all inputs of shape (4, 8) with tokens of length at most 2"),
        (At(X), "at these inputs"),
        (At(X, 0.5), "within 0.5 of these inputs"),
        (At(X, [0.5, 1.0], name="these tokens"), "within its radius of these tokens"),
        (Described("here"), "here"),
        (Everywhere().given("n = 3", "", "this mask"), "all inputs, n = 3, this mask"),
        (joined(Ball(1.0), Everywhere()), "tokens of length at most 1 and all inputs"),
    ],
)
def test_a_domain_has_a_text_and_survives_copies(domain, text):
    assert str(domain) == text
    for twin in (copy.deepcopy(domain), pickle.loads(pickle.dumps(domain))):
        assert twin == domain
        assert hash(twin) == hash(domain)
        assert str(twin) == text


def test_equality_is_about_the_set():
    assert At(X) == At(X.copy())
    assert At(X) != At(X + 1)
    assert At(X) != At(X, 0.1)
    assert Ball(1.0) != Ball(2.0)
    assert Ball(1.0) != Everywhere()
    assert Everywhere().given("n = 3") == Everywhere().given("n = 3")
    assert Everywhere().given() == Everywhere()
    assert isinstance(Everywhere().given("a").given("a", "b"), Restricted)
    assert str(Everywhere().given("a").given("a", "b")) == "all inputs, a, b"


def test_a_domain_cannot_be_changed():
    with pytest.raises(AttributeError, match="cannot be changed"):
        Ball(1.0).radius = 2.0


def test_chains_list_different_domains_once():
    ball = taut.upper_bound(2.0, domain=Ball(1.0))
    same = taut.chain(ball, taut.upper_bound(3.0, domain=Ball(1.0)))
    assert same.domain == Ball(1.0)
    other = taut.chain(ball, taut.upper_bound(3.0), taut.upper_bound(1.0))
    assert str(other.domain) == "tokens of length at most 1 and all inputs"
    assert taut.upper_bound(1.0, domain="my inputs").domain == Described("my inputs")
    assert as_domain(X) == At(X)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: Ball(-1.0), ValueError, "radius"),
        (lambda: Ball(1.0, (3,)), ValueError, "shape"),
        (lambda: Everywhere((0, 2)), ValueError, "shape"),
        (lambda: At(np.array([1, 2])), TypeError, "real numbers"),
        (lambda: At(X, -1.0), ValueError, "radius"),
        (lambda: At(X, [1.0] * 3), ValueError, "one for each of the 2"),
        (lambda: At(X, "far"), TypeError, "radius"),
        (lambda: At(X * np.nan), ValueError, "NaN"),
        (lambda: At(np.zeros((0, 2))), ValueError, "empty"),
        (lambda: At(object()), TypeError, "array"),
    ],
)
def test_nonsense_is_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()


@pytest.mark.parametrize("seed", range(5))
def test_attention_near_tokens_is_bounded(seed):
    """No derivative within the radius exceeds the bound, which is that of the ball around all."""
    rng = np.random.default_rng(seed)
    layer = Layer(*rng.standard_normal((3, 4, 4)), heads=2)
    x, radius = rng.standard_normal((5, 4)), 0.3
    bound = dot_product(layer, taut.At(x, radius), causal=True)
    assert str(bound.domain) == "within 0.3 of these inputs, n = 5, this mask"
    for _ in range(20):
        step = rng.standard_normal(x.shape)
        step *= radius / np.linalg.norm(step, axis=1).max()
        found = np.linalg.norm(jacobian(layer, x + step, causal=True), 2)
        assert found <= bound.upper
    ball = taut.Ball(float(np.linalg.norm(x, axis=1).max()) + radius)
    assert bound.upper == pytest.approx(dot_product_ball(layer, ball, n=5, causal=True).upper)
    assert dot_product(layer, taut.Ball(2.0), n=5).upper == dot_product_ball(layer, 2.0, n=5).upper
    assert dot_product(layer, taut.At(x)).upper == dot_product(layer, x).upper
    with pytest.raises(ValueError, match="number of tokens"):
        dot_product(layer, taut.Ball(2.0))
    with pytest.raises(ValueError, match="without a radius"):
        dot_product(layer, taut.At(x, radius), exact=True)
