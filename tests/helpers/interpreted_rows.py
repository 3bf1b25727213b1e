"""Run the Triton kernel for rows of attention under Triton's interpreter, in a process of its own.

The interpreter is chosen when triton is imported, which the process of the tests may have done.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any


def _start() -> None:
    os.environ["TRITON_INTERPRET"] = "1"
    import numpy as np

    np.seterr(all="ignore")  # NaN and infinities are among the rows


def _packed(values: Any) -> bytes:
    import torch

    buffer = io.BytesIO()
    torch.save(values, buffer)
    return buffer.getvalue()


def _unpacked(data: bytes) -> Any:
    import torch

    return torch.load(io.BytesIO(data), weights_only=False)


def _called(data: bytes) -> bytes:
    function, arguments = _unpacked(data)
    return _packed(function(*arguments))


def kernel_rows(*inputs: Any) -> Any:
    """The numbers that the kernel finds (in the process of the interpreter)."""
    from taut.models._gpu_rows.triton_rows import triton_rows

    assert "triton.runtime.interpreter" in sys.modules
    return triton_rows(*inputs)


@contextmanager
def interpreter() -> Iterator[Callable[..., Any]]:
    """A function that calls another one, with its arguments, where kernels are interpreted."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_start) as pool:
        yield lambda function, *arguments: _unpacked(
            pool.submit(_called, _packed((function, arguments))).result()
        )


def compiled_kernel(
    dtype: str, bias: int, capability: int, *, width: int, chunk: int, rows: int, columns: int
) -> str:
    """The kernel as PTX for a GPU that need not be there; ptxas has accepted it."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from taut.models._gpu_rows.triton_kernel import rows_kernel

    constants = {"WIDTH": width, "CHUNK": chunk, "BIAS": bias, "ROWS": rows, "COLUMNS": columns}
    constants |= {"q_width": 1, "k_width": 1, "b_column": 1, "l_row": 1}
    types = {"query": f"*{dtype}", "key": f"*{dtype}", "bias": "*u8" if bias == 2 else f"*{dtype}"}
    types |= {"last_key": "*i64", "out": "*fp32", "factor": "fp32"}
    names = rows_kernel.arg_names
    signature = {n: "constexpr" if n in constants else types.get(n, "i32") for n in names}
    source = ASTSource(
        fn=rows_kernel, signature=signature,
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )  # fmt: skip
    options = {"num_warps": 8, "enable_fp_fusion": False}
    target = GPUTarget("cuda", capability, 32)
    return triton.compile(source, target=target, options=options).asm["ptx"]
