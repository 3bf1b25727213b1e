"""Gradients of constants under jax.jit against that of softmax, compiled and portable."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.timing import best_times, table

ENTRIES = 1 << 18


def gradients() -> str:
    """In a process of its own, in which XLA has one thread."""
    flags = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        env=os.environ | flags,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout.strip()


def _measured() -> str:
    import jax
    import numpy as np

    import taut
    from taut._softmax.derivatives import attach

    jax.config.update("jax_enable_x64", True)

    def by_softmax(x: Any) -> Any:
        return jax.vjp(lambda v: jax.nn.softmax(v, -1), x)[1](x)[0]

    def mean(x: Any) -> Any:
        return taut.local_lipschitz(x).value.mean()

    def portable(x: Any) -> Any:
        zero = jax.numpy.zeros(x.shape[:-1], x.dtype)
        return attach(zero, zero, x, 1.0)[1].mean()

    alternatives = {
        "softmax": by_softmax,
        "taut": jax.grad(mean),
        "portable": jax.grad(portable),
    }
    jax.jit(alternatives["taut"])(np.zeros((2, 3)))  # compiles the kernel, once for a machine
    jax.jit(alternatives["taut"])(np.zeros((2, 3), np.float32))
    rows = []
    for dtype in ("float32", "float64"):
        for n in (64, 512, 4096):
            x = np.random.default_rng(0).standard_normal((ENTRIES // n, n)) * 2
            x = jax.device_put(x.astype(dtype))
            ready = {name: _compiled(jax, f, x) for name, f in alternatives.items()}
            best = best_times({name: run for name, (_, run) in ready.items()}, repeats=5)
            rows.append(
                [dtype, str(n)]
                + [f"{seconds / ENTRIES * 1e9:.2f}" for seconds in best.values()]
                + [f"{best['taut'] / best['softmax']:.1f}"]
                + [f"{1e3 * seconds:.0f}" for seconds, _ in ready.values()]
            )
    header = ["dtype", "n", "softmax ns/entry", "taut ns/entry", "portable ns/entry"]
    header += ["taut/softmax", "softmax: ms to compile", "taut", "portable"]
    return table(header, rows)


def _compiled(jax: Any, function: Any, x: Any) -> tuple[float, Callable[[], object]]:
    """How long it takes to trace and compile a function, and what runs it."""
    start = time.perf_counter()
    ready = jax.jit(function).lower(x).compile()
    return time.perf_counter() - start, lambda: jax.block_until_ready(ready(x))


if __name__ == "__main__":
    print(_measured())
