"""From logits to the exact 1-, 2- and ∞-constants of every row, against the peers."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import torch

import taut
from benchmarks.timing import best_times, table

P = (1, 2, math.inf)
ENTRIES = 4_000_000  # 12 heads of 577 x 577, say
IN_CACHE = 1 << 18


def logits(rows: int, n: int, scale: float, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.randn(rows, n, generator=generator, dtype=torch.float64) * scale).to(dtype)


def against_softmax() -> str:
    """Against both forms of softmax, in the second-level cache and beyond it."""
    rows = []
    before = torch.get_num_threads()
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for dtype in (torch.float32, torch.float64):
            for entries in (IN_CACHE, ENTRIES):
                for n in (16, 64, 130, 257, 512, 577, 1025, 4096):
                    best = max(
                        (_against_softmax(entries, n, scale, dtype) for scale in (1, 5)),
                        key=lambda best: best["taut"] / best["softmax"],
                    )
                    rows.append(
                        [
                            str(threads),
                            str(dtype).removeprefix("torch."),
                            f"{entries:,}",
                            str(n),
                            *(f"{seconds / entries * 1e9:.2f}" for seconds in best.values()),
                            f"{best['taut'] / best['softmax']:.2f}",
                            f"{best['taut'] / best['out=']:.2f}",
                        ]
                    )
    torch.set_num_threads(before)
    header = ["threads", "dtype", "entries", "n", "softmax ns/entry", "with out=", "taut ns/entry"]
    return table([*header, "taut/softmax", "taut/softmax with out="], rows)


def _against_softmax(entries: int, n: int, scale: float, dtype: torch.dtype) -> dict[str, float]:
    x = logits(entries // n, n, scale, dtype)
    out = torch.empty_like(x)
    return best_times(
        {
            "softmax": lambda: torch.softmax(x, -1),
            "out=": lambda: torch.softmax(x, -1, out=out),
            "taut": lambda: taut.local_lipschitz(x, P),
        },
        repeats=15,
    )


def one_call() -> str:
    """What a call costs where there is next to nothing to compute: one row of eight logits."""
    torch.set_num_threads(1)
    x = logits(1, 8, 1.0, torch.float32)
    host = x.numpy()
    best = best_times(
        {
            "torch.softmax": lambda: torch.softmax(x, -1),
            "taut, p = 2, torch": lambda: taut.local_lipschitz(x),
            "taut, p = 1, 2, inf, torch": lambda: taut.local_lipschitz(x, P),
            "taut, p = 2, NumPy": lambda: taut.local_lipschitz(host),
            "taut, p = 1, 2, inf, NumPy": lambda: taut.local_lipschitz(host, P),
        },
        repeats=500,
    )
    return table(["call", "µs"], [[name, f"{s * 1e6:.1f}"] for name, s in best.items()])


def gradients() -> str:
    """The backward pass of the mean l2 constant against that of softmax."""
    torch.set_num_threads(1)
    rows = []
    for dtype in (torch.float32, torch.float64):
        for n in (16, 64, 512, 4096):
            x = logits(IN_CACHE // n, n, 2.0, dtype).requires_grad_()
            weights = torch.softmax(x, -1)
            constant = taut.local_lipschitz(x).value
            seed, ones = torch.randn_like(weights), torch.ones_like(constant)

            def back(y: torch.Tensor, seed: torch.Tensor, x: torch.Tensor = x) -> object:
                return torch.autograd.grad(y, x, seed, retain_graph=True)

            best = best_times(
                {
                    "softmax": lambda y=weights, seed=seed, back=back: back(y, seed),
                    "taut": lambda y=constant, seed=ones, back=back: back(y, seed),
                }
            )
            rows.append(
                [
                    str(dtype).removeprefix("torch."),
                    str(n),
                    *(f"{seconds / IN_CACHE * 1e9:.2f}" for seconds in best.values()),
                    f"{best['taut'] / best['softmax']:.1f}",
                ]
            )
    return table(["dtype", "n", "softmax ns/entry", "taut ns/entry", "ratio"], rows)


def against_other_methods() -> str:
    import jax

    from taut._softmax.secular import constants

    jax.config.update("jax_enable_x64", True)
    torch.set_num_threads(1)
    rows = []
    for count, n in ((400, 64), (16, 512)):
        x = logits(count, n, 5.0, torch.float64)
        host, on_jax = x.numpy(), jax.numpy.asarray(x.numpy())
        portable = jax.jit(lambda v: constants(v, 1.0)[:2])
        best = best_times(
            {
                "taut": lambda x=x: taut.local_lipschitz(x, P),
                "jax.jit of the portable form": lambda v=on_jax, f=portable: jax.block_until_ready(
                    f(v)
                ),
                "NumPy, portable form": lambda v=host: constants(v, 1.0),
                "power iteration, 100 steps (not exact)": lambda x=x: _power_iteration(x),
                "eigvalsh of the dense Jacobian": lambda v=host: np.linalg.eigvalsh(
                    taut.jacobian(v)
                ),
                "autograd Jacobian + matrix_norm": lambda x=x: _autograd_norms(x),
            },
            repeats=7,
        )
        for name, seconds in best.items():
            rows.append(
                [
                    str(count),
                    str(n),
                    name,
                    f"{seconds / count * 1e6:.1f}",
                    f"{seconds / best['taut']:.0f}",
                ]
            )
    return table(["rows", "n", "method", "µs/row", "times taut"], rows)


def _power_iteration(x: torch.Tensor) -> torch.Tensor:
    s = torch.softmax(x, -1)
    v = torch.randn(s.shape, dtype=s.dtype, generator=torch.Generator().manual_seed(0))
    for _ in range(100):
        v = s * (v - (s * v).sum(-1, keepdim=True))
        v = v / v.norm(dim=-1, keepdim=True)
    return (s * (v - (s * v).sum(-1, keepdim=True))).norm(dim=-1)


def _autograd_norms(x: torch.Tensor) -> list[torch.Tensor]:
    jacobians = torch.func.vmap(torch.func.jacrev(lambda v: torch.softmax(v, -1)))(x)
    return [torch.linalg.matrix_norm(jacobians, order) for order in (1, 2, math.inf)]


def growth() -> str:
    torch.set_num_threads(1)
    rows = []
    for n in (64, 256, 1024, 4096, 16384, 65536):
        count = ENTRIES // n
        x = logits(count, n, 5.0, torch.float32)
        best = best_times({"taut": lambda x=x: taut.local_lipschitz(x, P)}, repeats=15)["taut"]
        tracemalloc.start()
        taut.local_lipschitz(x, P)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        rows.append([str(n), str(count), f"{best / ENTRIES * 1e9:.2f}", f"{peak / count:.0f}"])
    return table(["n", "rows", "ns/entry", "peak bytes/row beyond the input"], rows)


def any_p() -> str:
    torch.set_num_threads(1)
    rows = []
    for n in (64, 512):
        x = logits(200_000 // n, n, 2.0, torch.float64).numpy()
        best = best_times(
            {
                "p = 1, 2, inf": lambda x=x: taut.local_lipschitz(x, P),
                "p = 3": lambda x=x: taut.local_lipschitz(x, 3),
                "p = 1 -> 2": lambda x=x: taut.local_lipschitz(x, 1, 2),
                "p = 2, radius 0.1": lambda x=x: taut.local_lipschitz(x, 2, radius=0.1),
            },
            repeats=5,
        )
        rows += [
            [
                str(n),
                name,
                f"{seconds / len(x) * 1e6:.1f}",
                f"{seconds / best['p = 1, 2, inf']:.0f}",
            ]
            for name, seconds in best.items()
        ]
    return table(["n", "constant", "µs/row", "times the exact constants"], rows)


def bracket_width() -> str:
    """How wide the any-p bracket is, with and without the proof, and what the proof costs."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    rows = []
    for n in (8, 64, 512):
        x = rng.standard_normal((60, n)) * np.geomspace(0.05, 20, 60)[:, None]
        for p in (1.2, 3.0, 8.0, 50.0):
            loose = taut.local_lipschitz(x, p)
            best = best_times(
                {"proof": lambda x=x, p=p: taut.local_lipschitz(x, p, tight=True)}, repeats=1
            )
            tight = taut.local_lipschitz(x, p, tight=True)
            cells = [str(n), f"{p:g}"]
            for bound in (loose, tight):
                ratio = bound.upper / bound.lower
                cells += [
                    f"{np.median(ratio):.4f}",
                    f"{np.quantile(ratio, 0.95):.4f}",
                    f"{ratio.max():.4f}",
                ]
            rows.append([*cells, f"{best['proof'] / len(x) * 1e3:.1f}"])
    header = ["n", "p", "median", "95 %", "largest", "tight: median", "95 %", "largest", "ms/row"]
    return table(header, rows)
