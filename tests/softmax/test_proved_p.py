"""Tests of the certified upper bound against brute force, falsification, and quality."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from flint import arb, ctx

import taut
from taut._softmax.proved_p.entry import _FINEST, tight_upper
from taut._softmax.proved_p.suprema import both_sides, interval_supremum

KINDS = ("dirichlet", "ties", "near ties", "peaked", "flat", "near-tied top", "spread")


def make_row(rng: np.random.Generator, n: int, kind: str) -> np.ndarray:
    """Return a random probability row of a given kind."""
    if kind == "dirichlet":
        s = rng.dirichlet(np.full(n, rng.choice([0.3, 1.0, 5.0]))) + 1e-300
    elif kind in ("ties", "near ties"):
        levels = np.exp(rng.choice([0.1, 1.0, 3.0]) * rng.standard_normal(rng.integers(2, 5)))
        noise = 0.0 if kind == "ties" else rng.choice([1e-12, 1e-9, 1e-6, 1e-3])
        s = rng.choice(levels, n) * (1.0 + noise * rng.standard_normal(n))
    elif kind == "peaked":
        s = np.exp(rng.choice([0.1, 1.0, 3.0]) * rng.standard_normal(n)) * 10 ** -rng.uniform(1, 12)
        s[rng.integers(n)] = 1.0
    elif kind == "flat":
        s = np.exp(rng.choice([1e-9, 1e-3, 0.05]) * rng.standard_normal(n))
    elif kind == "near-tied top":
        s = np.exp(rng.standard_normal(n) - rng.uniform(0, 6))
        s[:2] = s.max() * (1.0 + rng.choice([1e-3, 1e-2, 1e-1]) * rng.random(2))
    else:
        s = np.exp(rng.choice([1.0, 2.0, 4.0]) * rng.standard_normal(n))
    return s / s.sum()


def make_exponent(rng: np.random.Generator) -> float:
    """Return q > 2, often near 2 or large."""
    return float(
        rng.choice(
            [2.0 + 10 ** rng.uniform(-3.5, -1.3), 2.0 + 10 ** rng.uniform(-1, 1), 4.0, 16.0, 60.0]
        )
    )


def apply(s: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return M v for columns v; as M 1 = 0, v at the largest entry is subtracted first."""
    top = s.argmax()
    w = v - v[top]
    return s[:, None] * (w - s @ w)


def brute_force(
    s: np.ndarray, q: float, rng: np.random.Generator, starts: int = 60
) -> tuple[float, np.ndarray]:
    """Return the best quotient ||Mv||_q / ||v||_q of a many-start power method, and its v."""
    s = s[s > 0]
    v = rng.standard_normal((s.size, starts)) * np.exp(rng.standard_normal((s.size, starts)))
    v = np.concatenate(
        (v, np.eye(s.size), -np.eye(s.size)[s.argmax()][:, None] + np.eye(s.size)), axis=1
    )
    v = v[:, np.abs(v).max(0) > 0]
    best, best_v = 0.0, v[:, 0]
    with np.errstate(all="ignore"):
        for _ in range(300):
            v = v / np.abs(v).max(0)
            u = apply(s, v)
            size = np.abs(u).max(0)
            u = u / size
            quotient = size * ((np.abs(u) ** q).sum(0) / (np.abs(v) ** q).sum(0)) ** (1.0 / q)
            k = int(np.nanargmax(quotient))
            if quotient[k] > best:
                best, best_v = float(quotient[k]), v[:, k].copy()
            z = apply(s, np.sign(u) * np.abs(u) ** (q - 1.0))
            v = np.sign(z) * (np.abs(z) / np.abs(z).max(0)) ** (1.0 / (q - 1.0))
            v = np.where(np.isfinite(v), v, 1.0)
    return best, best_v


def exact_quotient(s: np.ndarray, v: np.ndarray, q: float) -> arb:
    """Return the quotient in 50 digits, with s normalised exactly."""
    ctx.dps = 50
    t = [arb(float(x)) for x in s if x > 0]
    total = sum(t, arb(0))
    t = [x / total for x in t]
    w = [arb(float(x)) for x in v]
    mean = sum((a * b for a, b in zip(t, w, strict=True)), arb(0))
    image = [a * abs(b - mean) for a, b in zip(t, w, strict=True)]
    powers = [sum((abs(x) ** arb(q) for x in z if x != 0), arb(0)) for z in (image, w)]
    return (powers[0] / powers[1]) ** (1 / arb(q))


@pytest.mark.theorem("local-p-dual", "holds")
@pytest.mark.parametrize("rows", [8, pytest.param(25, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_never_below_brute_force(kind: str, rows: int) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    for _ in range(rows):
        s, q = make_row(rng, int(rng.integers(3, 13)), kind), make_exponent(rng)
        reached, v = brute_force(s, q, rng)
        upper = tight_upper(s, q, reached)
        assert upper >= reached * (1 - 1e-12)
        assert arb(upper) > exact_quotient(s, v, q) * (1 - arb(1e-14))


@pytest.mark.theorem("local-p-dual", "falsifiable")
@pytest.mark.parametrize("rows", [4, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_false_bounds_are_not_proved(kind: str, rows: int) -> None:
    """A fake lower bound makes the trial K fall just below a quotient that is attained."""
    rng = np.random.default_rng(100 + KINDS.index(kind))
    for _ in range(rows):
        s, q = make_row(rng, int(rng.integers(3, 13)), kind), make_exponent(rng)
        reached, _ = brute_force(s, q, rng)
        for below in (1e-9, 1e-6, 1e-3):
            assert tight_upper(s, q, reached * (1 - below) / (1 + _FINEST)) >= reached * (1 - 1e-12)


@pytest.mark.slow
@pytest.mark.theorem("local-p-dual", "attained")
def test_quality() -> None:
    rng = np.random.default_rng(7)
    gaps = []
    for k in range(210):
        s, q = make_row(rng, int(rng.integers(3, 11)), KINDS[k % len(KINDS)]), make_exponent(rng)
        reached, _ = brute_force(s, q, rng, 30)
        gaps.append(tight_upper(s, q, reached) / reached - 1.0)
    assert np.median(gaps) <= 1.1e-3
    assert np.quantile(gaps, 0.99) <= 1.01e-2
    assert np.max(gaps) <= 0.05


@pytest.mark.parametrize("p", [1.01, 1.5, 3.0, 100.0])
def test_two_entries_are_exact(p: float) -> None:
    for small in (0.5, 0.3, 1e-3, 1e-12):
        s = np.array([small, 0.0, 1.0 - small])
        assert tight_upper(s, p, 0.0) == pytest.approx(2.0 * small * s[2], rel=1e-12)


def test_degenerate_rows() -> None:
    assert tight_upper(np.array([1.0]), 3.0, 0.0) == 0.0
    assert tight_upper(np.array([0.0, 1.0, 0.0]), 3.0, 0.0) == 0.0
    s = np.array([1.0, 1e-300, 1e-305])
    assert tight_upper(s, 3.0, 0.0) >= 2e-300


def test_zeros_and_order_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    for kind in KINDS:
        s, q = make_row(rng, 8, kind), 3.0
        reached, _ = brute_force(s, q, rng)
        upper = tight_upper(s, q, reached)
        assert tight_upper(rng.permutation(s), q, reached) == upper
        assert tight_upper(np.insert(s, [0, 4, 8], 0.0), q, reached) == upper


def test_conjugate_exponents_agree() -> None:
    rng = np.random.default_rng(4)
    for kind in KINDS:
        s = make_row(rng, 6, kind)
        reached, _ = brute_force(s, 4.0, rng)
        assert tight_upper(s, 4.0 / 3.0, reached) == pytest.approx(
            tight_upper(s, 4.0, reached), rel=1e-9
        )


def test_no_warnings_and_long_rows() -> None:
    rng = np.random.default_rng(5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in KINDS:
            for p in (1.001, 2.001, 2.01, 900.0, 5000.0):
                s = make_row(rng, 100, kind)
                upper = tight_upper(s, p, 0.9 * float(s.max() * (1 - s.max())))
                assert 0.0 < upper <= 2.0 * s.max() * (1.0 - s.max()) * (1 + 1e-9) + 1e-12


def test_through_the_public_function(backend) -> None:
    x = np.random.default_rng(6).standard_normal((3, 2, 12)) * 2
    x[0, 0, :11] = -np.inf  # one entry left
    x[0, 1] = -np.inf
    for p in (1.2, 3.0, 20.0):
        if backend.name == "array_api_strict":
            with pytest.raises(TypeError, match="row by row"):
                taut.local_lipschitz(backend.array(x), p, tight=True)
            continue
        loose = taut.local_lipschitz(backend.array(x), p, scale=1.5)
        tight = taut.local_lipschitz(backend.array(x), p, scale=1.5, tight=True)
        assert tight.theorem == ("local-p-dual",)
        lower, upper, old = (
            backend.numpy(side) for side in (tight.lower, tight.upper, loose.upper)
        )
        np.testing.assert_array_equal(lower, backend.numpy(loose.lower))
        assert np.all(lower <= upper)
        assert np.all(upper <= old)
        assert np.all(upper[1:] <= 1.01 * lower[1:])
        assert tight.rounding == "proved"
        assert np.all(upper[0] < 1e-30)


@pytest.mark.parametrize("row", [47, 48, 56])
def test_two_large_entries_with_a_long_tail(row: int) -> None:
    """Rows on which limits on the signs of small entries gain nothing: the piece is halved."""
    rng = np.random.default_rng(0)
    rng.standard_normal((60, 8))
    x = (rng.standard_normal((60, 64)) * np.geomspace(0.05, 20, 60)[:, None])[row]
    for p in (8.0, 50.0):
        bound = taut.local_lipschitz(x, p, tight=True)
        assert bound.upper <= 1.01 * bound.lower


@pytest.mark.parametrize("p", [2.01, 3.0, 40.0, 1000.0])
def test_suprema_are_never_below_the_function(p: float) -> None:
    """Bounds of h on both sides of 0 and on intervals, against its exact values on many points."""
    rng = np.random.default_rng(int(p))
    ctx.dps = 60
    for _ in range(60):
        ratio = float(rng.choice([rng.random(), 1 - 1e-6 - 1e-3 * rng.random() ** 4, 1e-3]))
        m = float(rng.choice([0.0, 1.0, rng.random() * 3, 10.0 ** -rng.uniform(0, 9)]))
        c = float(rng.standard_normal() * rng.choice([0.0, 1e-9, 1.0, 30.0]))
        guesses = rng.random(2) * m
        sides = both_sides(ratio, p, m, c, 0.0, 0.0, *guesses)
        low, high = np.sort(rng.standard_normal(2)) * m
        inside, _ = interval_supremum(ratio, p, m, c, low, high)
        points = [low, high, sides.plus_at, sides.minus_at, 0.5 * (low + high)]
        for v in [*points, *(sides.plus_at * (1 + 1e-7 * rng.standard_normal(3))), -m, 2 * m]:
            z = abs(arb(v) - arb(m))
            exact = (arb(ratio) * z) ** arb(p) if z > 0 else arb(0)
            exact -= abs(arb(v)) ** arb(p) if v else 0
            exact -= arb(c) * arb(v)
            bound = sides.plus if v >= 0 else sides.minus
            # what underflows is covered where bounds are added up
            assert not arb(bound) + arb("1e-300") < exact
            if low <= v <= high:
                assert not arb(inside) + arb("1e-300") < exact


def test_gradient_of_the_tight_side(torch) -> None:
    x = torch.tensor([1.0, 0.3, -0.5], dtype=torch.float64, requires_grad=True)
    bound = taut.local_lipschitz(x, 3.0, tight=True)
    (upper,) = torch.autograd.grad(bound.upper, x, retain_graph=True)
    (lower,) = torch.autograd.grad(bound.lower, x)
    ratio = float(bound.upper.detach() / bound.lower.detach())
    np.testing.assert_allclose(upper.numpy(), ratio * lower.numpy(), rtol=1e-12)


def test_tight_says_where_it_cannot_go(jax) -> None:
    with pytest.raises(TypeError, match="cannot be traced"):
        jax.jit(lambda v: taut.local_lipschitz(v, 3, tight=True).upper)(jax.numpy.zeros(3))
    with pytest.raises(ValueError, match="tight=True is for a point"):
        taut.local_lipschitz([0.0, 1.0], 3, radius=0.1, tight=True)
