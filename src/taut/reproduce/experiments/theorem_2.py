"""Theorem 2 of Nair 2025: cosine attention, its bounds and the constants that are reached."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from taut._base.optional import needing
from taut.attention import cosine
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Curve, Plot, Result, ResultTable, never_above

WIDTH, SCALE, NU, EPSILON = 4, 2.0, 1.0, 0.5
FORMS: tuple[Literal["nair", "covariance"], ...] = ("nair", "covariance")


def run(options: Options) -> Result:
    """The paper's bound, that from covariances, and the constant that ascent reaches."""
    with needing("these experiments need PyTorch", "torch"):
        import torch

    sizes = (2, 4, 8) if options.quick else (2, 4, 8, 16, 32)
    steps = 60 if options.quick else 300
    source = torch.Generator().manual_seed(options.seed)
    weights = [
        torch.randn(WIDTH, WIDTH, generator=source, dtype=torch.float64) / WIDTH**0.5
        for _ in range(3)
    ]
    rows = []
    curves = [
        Curve("theorem 2 of the paper", [], [], dashed=True),
        Curve("from covariances", [], [], dashed=True),
        Curve("reached by ascent", [], []),
        Curve("at random inputs", [], []),
    ]
    best = None  # tokens where ascent ended for half as many: doubled, they have the same norm
    shares: dict[str, list[float]] = {"paper": [], "covariances": []}
    for n in sizes:
        wq, wk, wv = (w.numpy() for w in weights)
        paper_bound, bound = (
            float(cosine(wq, wk, wv, n=n, form=form, scale=SCALE, nu=NU, epsilon=EPSILON).upper)
            for form in FORMS
        )
        at_random, reached, best = _reached(weights, n, steps, source, best)
        numbers = (paper_bound, bound, reached, at_random)
        rows.append([str(n), *(f"{number:.4g}" for number in numbers), f"{reached / bound:.3f}",
                     f"{reached / paper_bound:.4f}"])  # fmt: skip
        shares["paper"].append(reached / paper_bound)
        shares["covariances"].append(reached / bound)
        for curve, number in zip(curves, numbers, strict=True):
            curve.x.append(float(n))
            curve.y.append(number)
    return Result(
        "theorem-2",
        "Theorem 2 of Nair 2025: a Lipschitz bound for cosine attention",
        {"width": WIDTH, "scale": SCALE, "nu": NU, "epsilon": EPSILON, "steps": steps,
         "seed": options.seed},
        [
            Claim("the paper's bound is never exceeded (largest share of it)", "≤ 1",
                  f"{np.max(shares['paper']):.4f}", never_above(shares["paper"], 1)),
            Claim("nor is the one from covariances", "not in the paper",
                  f"{np.max(shares['covariances']):.4f}",
                  None if never_above(shares["covariances"], 1) else False),
            Claim("it is half of that of Qi et al. (2023)", "factor 2", "not compared", None),
        ],
        [ResultTable("Bounds and constants",
                     ["tokens", "paper", "covariances", "ascent", "random inputs",
                      "ascent / covariances", "ascent / paper"], rows)],
        [Plot("l2 constant of the layer", "tokens", "constant", curves, log_x=True, log_y=True)],
        ["The bound of the paper grows with the square of the number of tokens. The one from "
         "covariances (theorem scsa-cov) grows with its root, holds for the same map and is proved "
         "in the documentation. The constants are largest singular values of the derivative, at "
         "random inputs and where gradient ascent over the inputs ended: found, not proved to be "
         "the largest."],
    )  # fmt: skip


def _reached(
    weights: list[Any], n: int, steps: int, source: Any, half: Any
) -> tuple[float, float, Any]:
    """The norm of the derivative at random inputs, the largest that ascent finds, and where."""
    with needing("these experiments need PyTorch", "torch"):
        import torch

    def attend(x: Any) -> Any:
        q, k, v = (
            u * torch.rsqrt(u.square().sum(-1, keepdim=True) + EPSILON)
            for u in (x @ w.T for w in weights)
        )
        return NU * torch.softmax(SCALE * q @ k.T, dim=-1) @ v

    def norm(x: Any) -> Any:
        slope = torch.func.jacrev(attend)(x).reshape(n * WIDTH, n * WIDTH)
        return torch.linalg.matrix_norm(slope, 2)

    starts = [
        torch.randn(n, WIDTH, generator=source, dtype=torch.float64) * 10.0**-k for k in range(3)
    ]
    first = max(float(norm(x)) for x in starts)
    best, where = first, starts[0]
    for x in [*starts, *([] if half is None else [torch.cat([half, half])])]:
        x = x.clone().requires_grad_()
        optimizer = torch.optim.Adam([x], lr=0.05)
        for _ in range(steps):
            value = norm(x)
            if float(value.detach()) > best:
                best, where = float(value.detach()), x.detach().clone()
            optimizer.zero_grad()
            (-value.log()).backward()
            optimizer.step()
    return first, best, where
