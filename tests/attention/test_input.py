"""What attention bounds accept, what they refuse and say, and how they behave at the edges."""

from __future__ import annotations

import math

import numpy as np
import pytest

import taut
from taut import attention

EYE = np.eye(4)
X = np.arange(12.0).reshape(3, 4) / 10


@pytest.fixture
def layer():
    return attention.Layer(EYE, EYE, EYE)


def test_every_library_gives_the_same(backend):
    rng = np.random.default_rng(0)
    wq, wk, wv = rng.normal(size=(3, 4, 4)).astype(np.float32)
    x = X.astype(np.float32)
    expected = attention.dot_product(attention.Layer(wq, wk, wv), x)
    given = attention.Layer(*(backend.array(w, "float32") for w in (wq, wk, wv)))
    found = attention.dot_product(given, backend.array(x, "float32"))
    assert found.upper == expected.upper
    assert isinstance(found.upper, float)
    o = {"n": 3, "scale": 1.0, "nu": 1.0, "epsilon": 1.0}
    assert (
        attention.cosine(*(backend.array(w, "float32") for w in (wq, wk, wv)), **o).upper
        == attention.cosine(wq, wk, wv, **o).upper
    )
    assert attention.affinity(backend.array(x, "float32")).upper == attention.affinity(x).upper


def test_bounds_say_what_they_are(layer):
    local = attention.dot_product(layer, X)
    assert (local.kind, str(local.norm), local.theorem) == ("upper", "l2", ("attn-local",))
    assert "these tokens" in str(local.domain)
    ball = attention.dot_product_ball(layer, 2.0, n=3, causal=True)
    assert "length at most 2" in str(ball.domain)
    assert "mask" in str(ball.domain)
    # The norms fit those of other layers, and of tokens only those of tokens.
    assert taut.chain(ball, taut.upper_bound(2.0, p=2)).upper == pytest.approx(2 * ball.upper)
    token = attention.dot_product_ball(layer, 2.0, n=3, norm="token")
    with pytest.raises(ValueError, match="cannot chain"):
        taut.chain(token, ball)


def test_ball_bounds_hold_what_they_cover(layer):
    """Local bounds inside the ball are never larger for the same tokens; more tokens cost more."""
    radius = np.linalg.norm(X, axis=1).max()
    sizes = [attention.dot_product_ball(layer, radius, n=n).upper for n in (1, 2, 8, 64)]
    assert sizes == sorted(sizes)
    assert attention.dot_product_ball(layer, 0.0, n=5).upper == pytest.approx(1.0, rel=1e-3)


def test_many_tokens_need_no_matrix(layer):
    """Without a mask one row stands for all, and the same as the mask that hides nothing."""
    everything = np.ones((7, 7), dtype=bool)
    for a, b in (
        (
            attention.dot_product_ball(layer, 2.0, n=7),
            attention.dot_product_ball(layer, 2.0, n=7, mask=everything),
        ),
        (
            attention.cosine(EYE, EYE, EYE, n=7, scale=1.0, nu=1.0, epsilon=1.0),
            attention.cosine(EYE, EYE, EYE, n=7, scale=1.0, nu=1.0, epsilon=1.0, mask=everything),
        ),
    ):
        assert a.upper == pytest.approx(b.upper, rel=1e-13)
    # Bounded scores spread the weights, so that in the end n does not matter: e^{‖A‖R²} does.
    a = 2.0  # ‖A‖R² with the scale 1/√4
    limit = a + math.exp(a) * math.hypot(1, a)
    assert attention.dot_product_ball(layer, 2.0, n=10**6).upper == pytest.approx(limit, rel=1e-3)


def test_extremes_stay_bounds():
    """Overflow makes a bound infinite and never wrong; zeros make it zero."""
    huge = attention.Layer(EYE * 1e40, EYE * 1e40, EYE, scale=1e40)
    assert attention.dot_product_ball(huge, 1e40, n=4).upper > 1e150
    zero = attention.Layer(EYE, EYE, 0 * EYE)
    assert attention.dot_product(zero, X).upper < 1e-10
    assert attention.dot_product_ball(zero, 1.0, n=4).upper < 1e-10
    peaked = attention.Layer(EYE * 1e4, EYE, EYE, scale=1.0)
    assert attention.dot_product(peaked, X).upper < 10
    assert attention.affinity([[1.0, 2.0]]).upper == 0.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: attention.Layer(EYE, EYE, EYE, heads=3), "not a multiple of its 3 heads"),
        (lambda: attention.Layer(EYE, EYE, EYE, heads=2, kv_heads=3), "multiple of kv_heads"),
        (lambda: attention.Layer(EYE[:2], EYE, EYE), "of one width"),
        (lambda: attention.Layer(EYE, EYE, np.ones((4, 3))), "read the same tokens"),
        (lambda: attention.Layer(EYE, EYE, EYE, np.ones((4, 3))), "wo must take"),
        (lambda: attention.Layer(EYE, EYE, EYE, bq=[1.0]), "bq must have 4 entries"),
        (lambda: attention.Layer(EYE * np.nan, EYE, EYE), "wq contains NaN"),
        (lambda: attention.Layer(EYE, EYE, EYE, scale=0.0), "scale must be a finite number > 0"),
        (lambda: attention.Layer(EYE, EYE, EYE, softcap=-1), "softcap must be a finite"),
        (lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), X[:, :3]), "width 4"),
        (lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), [X]), "call once for each"),
        (
            lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), X, mask=np.eye(3) > 2),
            "sees no key",
        ),
        (
            lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), X, mask=[[True] * 2]),
            "mask must be of shape",
        ),
        (
            lambda: attention.dot_product(
                attention.Layer(EYE, EYE, EYE), X, context=X[:2], causal=True
            ),
            "as many queries as keys",
        ),
        (
            lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), X, bias=[np.inf]),
            "bias must be finite",
        ),
        (
            lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), X, bias=np.ones((2, 2))),
            "bias must be of shape",
        ),
        (
            lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), X, rotations=[EYE]),
            "one matrix for each position",
        ),
        (lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), X, wrt="x"), "wrt must be"),
        (lambda: attention.dot_product(attention.Layer(EYE, EYE, EYE), X, norm="x"), "norm must"),
        (
            lambda: attention.dot_product(
                attention.Layer(EYE, EYE, EYE), X, norm="token", exact=True
            ),
            "norm='l2' only",
        ),
        (lambda: attention.dot_product_ball(attention.Layer(EYE, EYE, EYE), -1.0, n=3), "radius"),
        (lambda: attention.dot_product_ball(attention.Layer(EYE, EYE, EYE), 1.0, n=0), "n must be"),
        (
            lambda: attention.dot_product_ball(
                attention.Layer(EYE, np.ones((4, 3)), np.ones((4, 3))), 1.0, n=2
            ),
            "give a context",
        ),
        (
            lambda: attention.castin_ball(attention.Layer(EYE, EYE, EYE, softcap=1.0), 1.0, n=2),
            "use dot_product_ball",
        ),
        (lambda: attention.affinity([[1.0], [2.0]], form="x"), "form must be"),
        (lambda: attention.affinity([[1.0], [2.0]], form="zhang", p=1), "for p = 2"),
        (lambda: attention.affinity([[1.0], [2.0]], queries=[[1.0, 2.0]]), "one width"),
        (
            lambda: attention.cosine(EYE, EYE, EYE, n=2, scale=1.0, nu=1.0, epsilon=0.0),
            "epsilon must be",
        ),
        (
            lambda: attention.cosine(EYE, EYE, EYE, n=2, scale=1.0, nu=1.0, epsilon=1.0, form="x"),
            "form must be",
        ),
        (lambda: attention.l2(EYE, EYE, n=2, heads=3), "not multiples of 3 heads"),
        (lambda: attention.l2(EYE, EYE, np.ones((2, 3)), n=2), "wo must take 4"),
        (lambda: attention.l2(EYE, EYE, n=2, form="x"), "form must be"),
    ],
)
def test_what_is_refused_and_what_it_says(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_masks_are_boolean(layer):
    with pytest.raises(TypeError, match="mask must be boolean"):
        attention.dot_product(layer, X, mask=np.zeros((3, 3)))


@pytest.mark.parametrize("p", [1.0, 1 + 2.0**-52, 1.0001, 1.001, 1.01, 1.5, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("size", [1e-30, 0.1, 0.5, 10.0])
def test_affinity_does_not_underflow(p, size):
    """The true constant at q = 0 is size·2^(1/p)/4; powers of a dual exponent vanish at once."""
    true = size * 2 ** (1 / p) / 4
    assert true <= attention.affinity([[0.0, 0.0], [size, 0.0]], scale=1.0, p=p).upper
    assert attention.affinity([[0.0, 0.0], [size, 0.0]], scale=1.0, p=p).upper <= true * 1.0001


def test_a_context_is_a_context_whatever_object_it_is():
    rng = np.random.default_rng(0)
    layer = attention.Layer(*rng.normal(size=(3, 2, 2)), scale=1.0)
    x = rng.normal(size=(3, 2))
    same = attention.dot_product(layer, x, context=x, exact=True)
    copy = attention.dot_product(layer, x, context=x.copy(), exact=True)
    assert same.value == copy.value
    assert attention.jacobian(layer, x, context=x).shape == (6, 12)


def test_sizes_that_would_underflow_are_refused():
    eye = np.eye(2)
    with pytest.raises(ValueError, match="the size of wv is 1e-100, out of range"):
        attention.Layer(eye, eye, 1e-100 * eye)
    layer = attention.Layer(eye, eye, eye)
    with pytest.raises(ValueError, match="the size of x is 1e"):
        attention.dot_product(layer, 1e200 * eye)
    with pytest.raises(ValueError, match="n must be at most"):
        attention.dot_product_ball(layer, 1.0, n=10**30)
    with pytest.raises(TypeError, match="causal must be True or False"):
        attention.dot_product(layer, eye, causal="no")
    with pytest.raises(TypeError, match=r"must be a taut\.attention\.Layer"):
        attention.dot_product(eye, eye)
    for tiny in (1e-40, 1e40):
        small = attention.Layer(eye, eye, tiny * eye, tiny * eye)
        tokens = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
        exact = attention.dot_product(small, tokens, exact=True).value
        assert exact <= attention.dot_product(small, tokens).upper
