"""Logit equilibria against pygambit, OpenSpiel and Nashpy, and what a solution costs."""

from __future__ import annotations

import sys
from pathlib import Path

import altair
import numpy as np

from benchmarks.timing import best_times, table
from taut import games

sys.path.append(str(Path(__file__).parents[1]))  # the peers are checked there
from tests.helpers.game_peers import (
    duality_gap,
    gambit_game,
    nashpy_play,
    openspiel_descent,
    pygambit_solve,
    scipy_program,
)

TEMPERATURES = (0.3, 0.1, 0.03)  # as a fraction of the range of the payoffs


def gaussian(n: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(n, n))


def against_peers() -> str:
    """Time to a gap of 1e-10 τ; pygambit's default options and the fastest found by hand."""
    rows = []
    for n in (5, 10, 15, 20, 40, 100, 200):
        A = gaussian(n)
        unit = np.ptp(A)
        game = gambit_game(
            -A / unit, A / unit
        )  # built beforehand, which takes longer than to solve
        for relative in TEMPERATURES:
            tau = relative * unit
            runs = {
                "taut": lambda A=A, tau=tau: games.solve(A, tau),
                "pygambit": lambda game=game, lam=1 / relative: pygambit_solve(game, lam),
                "tuned": lambda game=game, lam=1 / relative: pygambit_solve(game, lam, 0.9, 2.0),
            }
            if n <= 40 and relative >= 0.1:
                runs["OpenSpiel"] = lambda A=A, tau=tau: openspiel_descent(A, tau, 1e-10 * tau)
            best = best_times(runs, repeats=3 if n < 100 else 1, budget=10)
            solution = games.solve(A, tau)
            found = pygambit_solve(game, 1 / relative)
            peer = duality_gap(A, tau, found[:n], found[n:])
            descent = best.get("OpenSpiel")
            rows.append(
                [
                    str(n),
                    str(relative),
                    f"{best['taut'] * 1e3:.2f}",
                    f"{solution.gap / tau:.0e}",
                    f"{best['pygambit'] * 1e3:.2f}",
                    f"{best['tuned'] * 1e3:.2f}",
                    f"{peer / tau:.0e}",
                    "" if descent is None else f"{descent * 1e3:.0f}",
                    f"{best['pygambit'] / best['taut']:.1f}",
                    f"{best['tuned'] / best['taut']:.1f}",
                ]
            )
    header = ["strategies", "temperature/range", "taut ms", "gap/temperature", "pygambit ms"]
    header += ["tuned ms", "gap/temperature", "OpenSpiel ms", "pygambit/taut", "tuned/taut"]
    return table(header, rows) + "\n\n" + _nashpy()


def _nashpy() -> str:
    """Nashpy's nearest is a simulation; what it reaches in a second or so."""
    A = gaussian(5)
    tau = 0.1 * np.ptp(A)
    best = best_times({"play": lambda: nashpy_play(A, tau, 1000)}, repeats=1)["play"]
    gap = duality_gap(A, tau, *nashpy_play(A, tau, 1000))
    return (
        "Nashpy has no logit solver; 1,000 rounds of its stochastic fictitious play at 5 "
        f"strategies (temperature/range 0.1) take {best * 1e3:.0f} ms and reach "
        f"gap/temperature = {gap / tau:.0e}."
    )


def large() -> str:
    """A 2,000 × 2,000 game at a certified τ, against the products that its solution needs."""
    rng = np.random.default_rng(0)
    rows = []
    for name, A in (
        ("signs", rng.choice([-1.0, 1.0], size=(2000, 2000))),
        ("Gaussian", rng.normal(size=(2000, 2000))),
        ("blocks", np.kron([[1.0, -1.0], [-1.0, 1.5]], np.ones((1000, 1000)))),
    ):
        y = np.full(2000, 1 / 2000)
        tau = 1.02 * games.solve(A, 100.0).certificate.smallest_temperature
        tolerance = 1e-10 / min(tau, np.ptp(A))  # a gap of 1e-10 in units of payoff
        options = {"tolerance": tolerance, "method": "dsfp"}
        solution = games.solve(A, tau, **options)
        best = best_times(
            {
                "solve": lambda A=A, tau=tau, o=options: games.solve(A, tau, **o),
                "rows": lambda A=A, y=y: A @ y,
                "columns": lambda A=A, y=y: y @ A,
            },
            repeats=10,
        )
        products = solution.products * (best["rows"] + best["columns"]) / 2
        rows.append(
            [
                name,
                f"{tau:.2f}",
                f"{solution.gap:.0e}",
                str(solution.products),
                f"{best['solve'] * 1e3:.1f}",
                f"{products * 1e3:.1f}",
                f"{best['solve'] / products:.2f}",
            ]
        )
    header = ["game", "temperature", "gap", "products", "solve ms", "products ms", "ratio"]
    note = (
        "Random games need five products: there the pass that makes the certificate, which costs "
        "about two, shows. In the blocks of a 2 × 2 game plain iteration is as slow as certified."
    )
    return f"{table(header, rows)}\n\n{note}"


def batches() -> str:
    """Many small games at once, for each game, against pygambit one by one (without building)."""
    rows = []
    for n in (3, 5, 10, 20):
        A = np.random.default_rng(0).normal(size=(1000, n, n))
        taus = 0.1 * np.ptp(A, axis=(1, 2))
        some = [gambit_game(-a / np.ptp(a), a / np.ptp(a)) for a in A[:20]]
        best = best_times(
            {
                "taut": lambda A=A, taus=taus: games.solve(A, taus),
                "pygambit": lambda some=some: [
                    pygambit_solve(game, 10.0, 0.9, 2.0) for game in some
                ],
            },
            repeats=3,
        )
        each, peer = best["taut"] / 1000, best["pygambit"] / 20
        rows.append([str(n), f"{each * 1e6:.1f}", f"{peer * 1e6:.0f}", f"{peer / each:.0f}"])
    return table(["strategies", "taut µs/game", "pygambit tuned µs/game", "ratio"], rows)


def annealing() -> str:
    """A Nash equilibrium to 1e-6 of the range, against scipy's linear program (exact)."""
    rows = []
    for n in (5, 20, 48, 100, 300):
        A = gaussian(n)
        best = best_times(
            {"taut": lambda A=A: games.anneal(A), "scipy": lambda A=A: scipy_program(A)},
            repeats=3 if n < 300 else 1,
            budget=10,
        )
        found = games.anneal(A)
        rows.append(
            [
                str(n),
                f"{best['taut'] * 1e3:.1f}",
                f"{found.exploitability / np.ptp(A):.0e}",
                f"{best['scipy'] * 1e3:.1f}",
                f"{best['taut'] / best['scipy']:.1f}",
            ]
        )
    return table(["strategies", "taut ms", "exploitability/range", "scipy ms", "taut/scipy"], rows)


def cost_against_temperature() -> str:
    """Time and products over τ and size, as a picture beside this file and as a table."""
    points = []
    for n in (10, 40, 100, 300):
        A = gaussian(n)
        for relative in 10.0 ** np.arange(1, -6.5, -1.0):
            tau = float(relative * np.ptp(A))
            solution = games.solve(A, tau)
            repeats = 3 if n < 300 else 1
            best = best_times({"solve": lambda A=A, tau=tau: games.solve(A, tau)}, repeats=repeats)
            milliseconds = best["solve"] * 1e3
            points.append(
                {
                    "strategies": n,
                    "temperature/range": relative,
                    "ms": milliseconds,
                    "products": int(solution.products),
                    "method": solution.method,
                    "converged": solution.converged,
                }
            )
    base = altair.Chart(altair.InlineData(values=points)).encode(
        x=altair.X("temperature/range:Q", scale=altair.Scale(type="log", reverse=True)),
        color=altair.Color("strategies:O", scale=altair.Scale(scheme="viridis")),
    )
    panels = [
        base.mark_line(point=True)
        .encode(y=altair.Y(f"{name}:Q", scale=altair.Scale(type="log")))
        .properties(width=320, height=240, title=title)
        for name, title in (("ms", "time (ms)"), ("products", "matrix-vector products"))
    ]
    picture = altair.hconcat(*panels).properties(background="white")
    picture.save(str(Path(__file__).with_name("games.svg")))
    rows = [
        [
            str(p["strategies"]),
            f"{p['temperature/range']:g}",
            f"{p['ms']:.2f}",
            str(p["products"]),
            p["method"] if p["converged"] else "NOT CONVERGED",
        ]
        for p in points
    ]
    header = ["strategies", "temperature/range", "ms", "products", "method"]
    return "![time and products](games.svg)\n\n" + table(header, rows)
