"""The arithmetic of the page against the library, in a real browser."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import taut
from taut import games

EXPONENTS = (1.0, 1.05, 1.5, 2.0, 3.0, 8.0, math.inf)
TOLERANCE = 1e-12
SEARCHED = 1e-6


def called(page, code: str, *arguments):
    """What a function of the page gives for each list of arguments; Infinity goes as a string."""
    text = json.dumps(arguments).replace('"inf"', "Infinity").replace("-Infinity", "-Infinity")
    return page.run(f"({text}).map(([...given]) => ({code})(...given))")


def logits(seed: int = 0, count: int = 300) -> list[list[float]]:
    """Rows of every shape: flat, peaked, tied, and those of the theorems."""
    draw = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        n = int(draw.integers(2, 13))
        row = draw.normal(size=n) * 10 ** draw.uniform(-1.5, 1)
        if draw.random() < 0.15:
            row[: n // 2 + 1] = row[0]
        rows.append(np.clip(row, -50, 50).tolist())
    for n in (2, 3, 5, 12):
        rows += [[0.0] * n, [math.log(n - 1)] + [0.0] * (n - 1), taut.worst_input(n, 2).tolist()]
    return rows


def near(found, expected, scale: float = 1.0) -> bool:
    found, expected = np.asarray(found, dtype=float), np.asarray(expected, dtype=float)
    return bool(np.all(np.abs(found - expected) <= TOLERANCE * max(1.0, scale)))


def ties(row) -> bool:
    """Whether the two largest are so near that the worst direction is not unique."""
    top = np.sort(row)[-2:]
    return bool(top[1] - top[0] < 1e-6)


@pytest.fixture(scope="module")
def cases():
    draw = np.random.default_rng(1)
    return [(row, float(np.exp(draw.uniform(-3, 3)))) for row in logits()]


def test_functions(page, cases):
    code = """(x, scale) =>
      [taut.softmax(x, scale), taut.jacobian(x, scale), taut.entropy(taut.softmax(x, scale))]"""
    for (x, scale), found in zip(cases, called(page, code, *cases), strict=True):
        s = taut.softmax(x, scale=scale)
        assert near(found[0], s)
        assert near(found[1], taut.jacobian(x, scale=scale), scale)
        assert near(found[2], -np.sum(s[s > 0] * np.log(s[s > 0])))


def test_limits_of_sharpness(page):
    rows = [[1.0, 3.0, 3.0], [0.0, 0.0], [2.0, -1.0, 2.0, -1.0]]
    found = called(
        page,
        "(x) => [taut.softmax(x, Infinity), taut.softmax(x, -Infinity)]",
        *[[row] for row in rows],
    )
    for row, (high, low) in zip(rows, found, strict=True):
        assert near(high, taut.softmax(row, scale=math.inf))
        assert near(low, taut.softmax(row, scale=-math.inf))


@pytest.mark.parametrize("p", EXPONENTS)
def test_constants_and_worst_directions(page, cases, p):
    """Both sides are the library's, the direction attains them, and is the library's if unique."""
    name, exact = ("Infinity" if p == math.inf else p), p in (1, 2, math.inf)
    given = cases if exact else cases[::4]  # the library's brackets take milliseconds
    code = f"""(x, scale) => {{ const v = taut.worstDirection(x, {name}, scale);
      return [taut.localConstant(x, {name}, scale), v, taut.rateAlong(x, v, {name}, scale)]; }}"""
    compared = 0
    for (x, scale), (constant, v, rate) in zip(given, called(page, code, *given), strict=True):
        expected = taut.local_lipschitz(x, p, scale=scale)
        assert constant["kind"] == expected.kind
        assert constant["theorem"] == expected.theorem[0]
        for side in ("lower", "upper"):
            theirs = float(getattr(expected, side))
            # Lower sides of brackets are found by searches, which end at other directions.
            most = 1e-9 if exact or side == "upper" else SEARCHED
            assert abs(constant[side] - theirs) <= most * theirs  # small constants have digits too
        assert (
            constant["lower"] <= constant["upper"] <= float(taut.global_lipschitz(p, scale=scale))
        )
        assert abs(np.linalg.norm(v, p) - 1) < TOLERANCE
        assert near(rate, constant["lower"], scale)
        assert near(rate, np.linalg.norm(taut.jvp(x, v, scale=scale), p), scale)
        # With two logits both columns are the largest in l1; brackets may have several maximisers.
        if p in (2, math.inf) and not ties(np.multiply(x, scale)):
            assert near(v, taut.worst_direction(x, p, scale=scale))
            compared += 1
    assert p not in (2, math.inf) or compared > 200


def test_constants_of_random_exponents(page, cases):
    draw = np.random.default_rng(2)
    given = [(x, float(1 / draw.uniform(0.02, 0.98)), scale) for x, scale in cases[::2]]
    # Nearly flat rows, whose worst directions divide the entries into two large groups.
    flat = [(0.3 * np.sin(np.arange(n) ** 2)).tolist() for n in (3, 4, 5, 8, 12)]
    given += [(x, p, 1.0) for x in flat for p in (1.2, 1.5, 3.0, 8.0, 20.0)]
    found = called(page, "(x, p, scale) => taut.localConstant(x, p, scale)", *given)
    for (x, p, scale), constant in zip(given, found, strict=True):
        expected = taut.local_lipschitz(x, p, scale=scale)
        assert constant["lower"] == pytest.approx(float(expected.lower), rel=SEARCHED)
        assert near(constant["upper"], float(expected.upper), scale)


def test_steps_and_their_bounds(page, cases):
    draw = np.random.default_rng(3)
    given = []
    for x, scale in cases:
        d = draw.normal(size=len(x)) * 10 ** draw.uniform(-6, 1.5) / scale
        given.append((x, d.tolist(), scale))
    for p in (1.0, 1.5, 2.0, math.inf):
        name = "Infinity" if p == math.inf else p
        code = f"""(x, d, scale) => [taut.stepBounds(d, {name}, scale),
          taut.trueStep(x, d, {name}, scale), taut.changeAfterStep(x, d, scale)]"""
        for (x, d, scale), (bounds, size, change) in zip(
            given, called(page, code, *given), strict=True
        ):
            truth = taut.softmax(np.add(x, d), scale=scale) - taut.softmax(x, scale=scale)
            assert near(change, truth)
            assert near(size, np.linalg.norm(truth, p))
            expected = taut.step_bound(d, p, scale=scale)
            assert near(bounds["least"], float(expected.upper))
            oscillation = np.ptp(d)
            assert near(bounds["tanh"], 2 ** (1 / p) * math.tanh(scale * oscillation / 4))
            assert size <= bounds["least"]


def test_small_steps_lose_no_digits(page):
    """A step of 1e-4 at the point of example 1 of Nair 2025, to thirteen digits of the ratio."""
    x = [0.0, 0.0] + [-20.0] * 8
    d = [1e-4 / math.sqrt(2), -1e-4 / math.sqrt(2)] + [0.0] * 8
    (found,) = called(page, "(x, d) => taut.trueStep(x, d, 2, 1)", [x, d])
    assert abs(found / 1e-4 - 0.4999999950444) < 1e-13


def test_random_directions(page):
    """They are Gaussian, the same for a seed, and their rates are those of the library."""
    found = page.run("taut.gaussianDirections(5, 1000, 7)")
    assert found == page.run("taut.gaussianDirections(5, 1000, 7)")
    assert found != page.run("taut.gaussianDirections(5, 1000, 8)")
    drawn = np.array(found)
    assert abs(drawn.mean()) < 0.05
    assert abs(drawn.std() - 1) < 0.05
    assert np.abs(np.corrcoef(drawn.T) - np.eye(5)).max() < 0.15
    x = [1.0, 0.3, 0.0, -1.0, 0.9]
    for p in (1.0, 2.0, 3.0):
        rates = page.run(f"taut.ratesAlong({x}, taut.gaussianDirections(5, 50, 7), {p}, 2)")
        expected = [
            np.linalg.norm(taut.jvp(x, v, scale=2.0), p) / np.linalg.norm(v, p) for v in found[:50]
        ]
        assert near(rates, expected)


def payoffs(count: int = 200) -> list[tuple[list[list[float]], float]]:
    draw = np.random.default_rng(4)
    found = []
    for _ in range(count):
        n, m = draw.integers(1, 7, size=2)
        A = draw.normal(size=(n, m)) * 3
        if draw.random() < 0.5:
            A = np.round(A)
        found.append((A.tolist(), float(10 ** draw.uniform(-1, 1.5))))
    return found


@pytest.fixture(scope="module")
def played():
    return payoffs()


def test_equilibria(page, played):
    found = called(page, "(A, tau) => taut.solveGame(A, tau)", *played)
    for (A, tau), mine in zip(played, found, strict=True):
        # The library's target is a gap; as small as this one it ends at the rounding of numbers.
        theirs = games.solve(A, tau, tolerance=1e-26)
        assert near(mine["x"], theirs.x)
        assert near(mine["y"], theirs.y)
        assert near(mine["value"], theirs.value, tau)
        assert near(mine["payoff"], theirs.payoff)
        assert near(mine["exploitability"], theirs.exploitability)
        assert mine["gap"] < 1e-20 * max(1, tau)
        assert near(mine["gap"], theirs.gap)
        assert mine["distance"] < 1e-9


def test_certificates(page, played):
    code = """(A, tau) => {
      const found = taut.certify(A, tau);
      return {...found, rounds: String(taut.roundsForGap(found, 1e-10))};
    }"""
    for (A, tau), mine in zip(played, called(page, code, *played), strict=True):
        theirs = games.certify(A, tau)
        upper = float(theirs.factor.upper)
        assert abs(mine["factor"] - upper) <= TOLERANCE * max(1, upper)
        assert near(mine["threshold"], theirs.smallest_temperature)
        assert near(mine["interaction"], theirs.interaction)
        assert mine["contracts"] == theirs.contracts
        assert near(mine["nairThreshold"], games.certify(A, tau, p=2).smallest_temperature)
        first, rate = theirs.gap_bound()
        assert abs(mine["first"] - first) <= TOLERANCE * max(1, first)
        assert abs(mine["rate"] - rate) <= TOLERANCE * max(1, rate)
        assert float(mine["rounds"]) == theirs.iterations(1e-10)


def test_plain_iteration(page, played):
    """Gaps of every round; the promise of the certificate is kept from this start too."""
    rounds = 40
    found = called(page, f"(A, tau) => taut.iterate(A, tau, {rounds})", *played)
    for (A, tau), mine in zip(played, found, strict=True):
        seen: list[float] = []
        start = [1.0] + [0.0] * (len(A[0]) - 1)
        games.solve(A, tau, method="dsfp", start=start, max_iterations=rounds, tolerance=1e-300,
                    callback=lambda _, gap, seen=seen: seen.append(gap))  # fmt: skip
        if not seen:  # already solved
            continue
        at_start = games.solve(A, tau, method="dsfp", start=start, max_iterations=0).gap
        best = np.minimum.accumulate([at_start, *mine["gaps"]])[1 : len(seen) + 1]
        assert near(best, seen, float(np.max(seen)))
        certificate = games.certify(A, tau)
        if certificate.contracts:
            first, rate = certificate.gap_bound()
            promised = first * rate ** np.arange(rounds)
            # Below the promise up to the rounding that every gap is enlarged by.
            assert np.all(mine["gaps"] <= promised + 1e-24 * max(1, tau))


def test_rates_at_the_equilibrium(page, played):
    """The spectral radius of a round's derivative; never above the certified factor."""
    code = """(A, tau) => {
      const {x, y} = taut.solveGame(A, tau);
      return [x, y, taut.rateAtEquilibrium(A, tau, x, y)];
    }"""
    for (A, tau), (x, y, rate) in zip(played, called(page, code, *played), strict=True):
        x, y, A = np.array(x), np.array(y), np.array(A)
        M, N = (np.diag(s) - np.outer(s, s) for s in (x, y))
        radius = np.abs(np.linalg.eigvals(N @ A.T @ M @ A)).max() / tau**2
        assert abs(rate - radius) <= 1e-9 * max(1, radius)
        assert rate <= float(games.certify(A, tau).factor.upper) * (1 + 1e-12) + 1e-15


def test_the_smallest_flip(page):
    draw = np.random.default_rng(5)
    rows = [(draw.normal(size=draw.integers(2, 20)) * 3).tolist() for _ in range(100)]
    for row, flip in zip(
        rows, called(page, "(z) => taut.smallestFlip(z)", *[[row] for row in rows]), strict=True
    ):
        first, second = np.argsort(row)[::-1][:2]
        assert (flip["leader"], flip["runnerUp"]) == (first, second)
        change = np.array(flip["change"])
        assert np.argmax(row + change) == second
        assert abs(np.linalg.norm(change) / flip["size"] - 1.01) < 1e-9
        # Nothing smaller does: a difference of two entries moves by at most √2 times a change.
        assert abs(flip["size"] * math.sqrt(2) - (row[first] - row[second])) < TOLERANCE
        assert np.argmax(row + change / 1.02) == first
    assert called(page, "(z) => taut.smallestFlip(z)", [[1.0]]) == [None]
