"""Attacks: gradient ascent over tokens and weights against every bound; none is ever exceeded."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from taut import attention  # noqa: E402
from tests.helpers import attention_attack as attack  # noqa: E402
from tests.helpers import attention_oracle as oracle  # noqa: E402


def eye(d):
    return torch.eye(d, dtype=torch.float64)


def attack_ball(rng, n, strength, d, *, causal=False, softcap=None, steps=250, start=None):
    """Largest constant found in the unit ball with ‖A‖ = strength and ‖Wv‖ = 1, and the bound."""
    mask = torch.ones(n, n, dtype=torch.bool).tril() if causal else None

    def score(p):
        w = {"wq": strength * attack.unit(p[1]), "wk": eye(d), "wv": attack.unit(p[2])}
        return oracle.spectral(
            oracle.derivative(
                lambda z: oracle.attend(w, z, z, mask=mask, softcap=softcap), attack.inside(p[0])
            )
        )

    start = start or [rng.normal(size=(n, d)), rng.normal(size=(d, d)), rng.normal(size=(d, d))]
    best, _ = attack.ascend(score, start, steps=steps)
    layer = attention.Layer(strength * np.eye(d), np.eye(d), np.eye(d), scale=1.0, softcap=softcap)
    return best, attention.dot_product_ball(layer, 1.0, n=n, causal=causal).upper, layer


@pytest.mark.theorem("attn-ball", "holds")
@pytest.mark.parametrize("strength", [0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("n", [2, 3, 6])
def test_no_ascent_leaves_the_ball_bound(n, strength):
    rng = np.random.default_rng(n)
    for causal, softcap in ((False, None), (True, None), (False, 2.0)):
        d = int(rng.integers(1, 4))
        found, bound, layer = attack_ball(
            rng, n, strength, d, causal=causal, softcap=softcap, steps=80
        )
        assert found <= bound
        if softcap is None:
            assert found <= attention.castin_ball(layer, 1.0, n=n).upper


@pytest.mark.theorem("attn-ball", "attained")
@pytest.mark.theorem("attn-ball", "falsifiable")
def test_ascent_comes_near_the_ball_bound():
    """0.95 of the bound is reached by two tokens at ‖A‖R² = 10: 0.9 times the bound would fail."""
    rng = np.random.default_rng(0)
    best = 0.0
    for _ in range(3):
        # If A swaps two axes, two opposite tokens keep the weights ½ however large A is; at
        # random, weights are one-hot and there is nothing to climb.
        start = [[[1.0, 0.0], [-1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]], np.eye(2)]
        start = [a + 0.1 * rng.normal(size=(2, 2)) for a in start]
        found, bound, _ = attack_ball(None, 2, 10.0, 2, start=start)
        assert found <= bound
        best = max(best, found / bound)
    assert best > 0.9


@pytest.mark.theorem("attn-castin", "attained")
@pytest.mark.theorem("attn-castin", "falsifiable")
def test_the_literature_bound_is_at_best_root_three_away():
    """One token in a small ball: 1 against √3. So 0.57 times the bound fails, and no more can."""
    layer = attention.Layer(np.eye(2), np.eye(2), np.eye(2), scale=1.0)
    bound = attention.castin_ball(layer, 1e-4, n=1).upper
    assert 0.57 * bound < 1.0 <= bound


@pytest.mark.theorem("attn-local", "holds")
@pytest.mark.theorem("attn-local", "attained")
@pytest.mark.theorem("attn-local", "falsifiable")
def test_ascent_reaches_the_local_bound():
    """More than one token, weights that are not one-hot: 0.99 is reached and 1 never passed."""
    best = 0.0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        n, d = int(rng.integers(2, 5)), int(rng.integers(1, 4))

        def score(p):
            w = dict(zip(("wq", "wk", "wv"), p[1:], strict=True))
            full = oracle.derivative(lambda z: oracle.attend(w, z, z), p[0])
            return oracle.spectral(full) / attack.local_bound(w, p[0])

        start = [rng.normal(size=(n, d)), *(rng.normal(size=(d, d)) for _ in range(3))]
        _, where = attack.ascend(score, start, steps=150)
        x, *w = where
        layer = attention.Layer(*w, scale=1.0)
        exact = attention.dot_product(layer, x, exact=True)
        bound = attention.dot_product(layer, x).upper
        assert exact.lower <= bound
        best = max(best, exact.value / bound)
    assert best > 0.99


@pytest.mark.theorem("attn-token", "holds")
@pytest.mark.theorem("attn-token", "attained")
def test_two_opposite_tokens_attain_the_token_bound():
    """Tokens ±1 and A = 1.2: the bound at the tokens is met to eight digits."""
    for a in (0.1, 0.5, 1.2, 3.0):
        layer = attention.Layer([[a]], [[1.0]], [[1.0]], scale=1.0)
        true = np.abs(attention.jacobian(layer, [[1.0], [-1.0]])).sum(axis=1).max()
        at = attention.dot_product(layer, [[1.0], [-1.0]], norm="token").upper
        ball = attention.dot_product_ball(layer, 1.0, n=2, norm="token").upper
        assert true <= at <= ball * (1 + 1e-12)
        if a == 1.2:
            assert true > 0.999 * at


@pytest.mark.theorem("scsa-cov", "holds")
@pytest.mark.theorem("scsa-cov", "attained")
@pytest.mark.theorem("scsa-cov", "falsifiable")
@pytest.mark.theorem("scsa", "attained")
def test_ascent_comes_near_the_bound_of_cosine_attention():
    """0.9 of the bound is reached with several tokens, so 0.9 times it would fail."""
    best, nair_best = 0.0, 0.0
    for n, scale, d in (
        (2, 3.0, 1),
        (2, 3.0, 2),
        (3, 3.0, 1),
        (3, 0.1, 2),
        (6, 3.0, 1),
        (6, 1.0, 2),
    ):
        for trial in range(2):
            rng = np.random.default_rng(10 * n + trial)

            def score(p, scale=scale, n=n):
                s = torch.exp(p[4])
                w = [s[i] * attack.unit(p[1 + i]) for i in range(3)]
                full = oracle.derivative(
                    lambda z: oracle.cosine(*w, z, scale=scale, nu=1.0, epsilon=1.0), p[0]
                )
                return oracle.spectral(full) / (scale * s[0] + math.sqrt(n) * (scale * s[1] + s[2]))

            start = [
                rng.normal(size=(n, d)),
                *(rng.normal(size=(d, d)) for _ in range(3)),
                [0.0] * 3,
            ]
            _, where = attack.ascend(score, start, steps=150)
            w = [
                np.exp(where[4][i]) * where[1 + i] / np.linalg.norm(where[1 + i], 2)
                for i in range(3)
            ]
            full = oracle.derivative(
                lambda z: oracle.cosine(
                    *(oracle.tensor(a) for a in w), z, scale=scale, nu=1.0, epsilon=1.0  # noqa: B023
                ),
                oracle.tensor(where[0]),
            )  # fmt: skip
            true = float(oracle.spectral(full))
            options = {"n": n, "scale": scale, "nu": 1.0, "epsilon": 1.0}
            bound = attention.cosine(*w, **options).upper
            assert true <= bound
            best = max(best, true / bound)
            nair_best = max(nair_best, true / attention.cosine(*w, form="nair", **options).upper)
    assert best > 0.9
    assert 0.2 < nair_best < 0.51


@pytest.mark.theorem("l2-attention", "holds")
@pytest.mark.parametrize(("n", "factor"), [(2, 0.6), (4, 0.4), (8, 0.3)])
def test_ascent_against_l2_attention(n, factor):
    """The bound is within 1/factor of what ascent finds, so ``factor`` times it would fail."""
    best = 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        d = 1 + seed % 2

        def score(p):
            w = [attack.unit(a) for a in p[1:]]
            return oracle.spectral(
                oracle.derivative(lambda z: oracle.neighbours(*w, None, z), p[0])
            )

        start = [2 * rng.normal(size=(n, d)), *(rng.normal(size=(d, d)) for _ in range(2))]
        found, where = attack.ascend(score, start, steps=150)
        w = [a / np.linalg.norm(a, 2) for a in where[1:]]
        bound = attention.l2(*w, n=n).upper
        assert found <= bound <= attention.l2(*w, n=n, form="kim").upper
        best = max(best, found / bound)
    assert best > factor


@pytest.mark.theorem("affinity-diameter", "holds")
def test_ascent_against_the_affinity():
    """Over keys, queries and additive terms: the constant √2/4 of the diameter is reached."""
    best = 0.0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        m, d = int(rng.integers(2, 6)), int(rng.integers(1, 4))

        def score(p):
            keys, query, fixed = p
            full = oracle.derivative(lambda q: torch.softmax(keys @ q + fixed, dim=0), query)
            return oracle.spectral(full) / torch.pdist(keys).max()

        start = [rng.normal(size=(m, d)), rng.normal(size=d), rng.normal(size=m)]
        found, where = attack.ascend(score, start, steps=300)
        bound = attention.affinity(where[0], scale=1.0).upper
        assert found * float(torch.pdist(torch.as_tensor(where[0])).max()) <= bound
        best = max(best, found)
    assert 0.99 * math.sqrt(2) / 4 < best <= math.sqrt(2) / 4 * (1 + 1e-12)
