"""What taut's core does, in one screen: run by `make audit`."""

from __future__ import annotations

import math

import numpy as np

import taut

INF = math.inf


def heading(text: str) -> None:
    print(f"\n{text}")


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    widths = [max(len(line[i]) for line in (header, *rows)) for i in range(len(header))]
    for line in (header, tuple("-" * width for width in widths), *rows):
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)))


def points() -> None:
    heading("How sensitive is softmax here? (exact; the limit is 0.5)")
    examples = {
        "peaked": [9.0, 0.0, 0.0, 0.0],
        "split between two": [6.0, 6.0, 0.0, 0.0],
        "flat": [0.0, 0.0, 0.0, 0.0],
        "one key visible": [1.0, -INF, -INF, -INF],
    }
    rows = []
    for name, x in examples.items():
        one, two = taut.local_lipschitz(x, (1, 2))
        three = taut.local_lipschitz(x, 3)
        mixed = taut.local_lipschitz(x, INF, 1)
        rows.append(
            (
                name,
                f"{float(one):.4f}",
                f"{float(two):.4f}",
                f"{float(three.lower):.4f} to {float(three.upper):.4f}",
                f"{float(mixed):.4f}",
            )
        )
    table(("logits", "l1 and linf", "l2", "l3", "linf->l1 (limit 1)"), rows)


def attention_map() -> None:
    heading("An attention map of 8 heads, 256 x 256: random probing against the exact constant")
    rng = np.random.default_rng(0)
    sharpness = np.geomspace(0.3, 12, 8)[:, None, None]
    scores = rng.normal(size=(8, 256, 256)) * sharpness
    exact = taut.local_lipschitz(scores, p=2)
    random = taut.empirical_lipschitz(scores, p=2, epsilon=1e-3)
    worst = taut.empirical_lipschitz(scores, p=2, epsilon=1e-3, along="worst")
    rows = [
        (
            str(head),
            f"{sharpness[head, 0, 0]:.1f}",
            f"{random.lower[head].max():.4f}",
            f"{worst.lower[head].max():.4f}",
            f"{exact.upper[head].max():.4f}",
        )
        for head in range(8)
    ]
    header = (
        "head",
        "logit scale",
        "random step (>=)",
        "worst step (>=)",
        "local constant (exact)",
    )
    table(header, rows)


def games() -> None:
    heading("Logit equilibria of a zero-sum game, with a proof of their quality")
    payoffs = [[0.0, 2.0, -1.0], [-2.0, 0.0, 1.0], [1.0, -1.0, 0.0]]  # the row player pays
    rows = []
    for tau in (4.0, 1.5, 0.5, 0.05):
        solution = taut.games.solve(payoffs, tau)
        contracts = f"{solution.certificate.factor.upper:.4f}"
        rows.append(
            (
                f"{tau:g}",
                " ".join(f"{p:.4f}" for p in solution.x),
                f"{solution.gap:.0e}",
                contracts if solution.certificate.contracts else "not certified",
                solution.method,
            )
        )
    table(("tau", "row player", "gap (<=)", "plain iteration", "found by"), rows)


def theorems() -> None:
    heading("Every number names its theorem")
    print(f"  {taut.local_lipschitz([2.0, 1.0, 0.0])}")
    print(f"  {taut.theorems.get('local-2')}")
    print(f"\ntaut {taut.__version__}. `make docs` builds the tutorial and the theory.")


if __name__ == "__main__":
    points()
    attention_map()
    games()
    theorems()
