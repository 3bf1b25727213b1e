"""What torch may do to float32 without being seen: autocast, and matrix products of fewer digits.

Proofs of rounding assume IEEE 754: float32 numbers that are multiplied as such and summed up in
float32 or better. Autocast turns them into half precision, and a ``float32_matmul_precision`` below
``"highest"`` lets devices multiply them as TF32 or bfloat16. Neither touches float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu")


@contextmanager
def without_autocast() -> Iterator[None]:
    """Switch autocast off on every device where it is on; a decorator as well."""
    with ExitStack() as stack:
        for kind in _DEVICES:
            if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def multiplies_float32_fully() -> bool:
    """Whether all settings leave matrix products of float32 their full precision."""
    try:
        if torch.get_float32_matmul_precision() != "highest":
            return False
    except RuntimeError:  # torch refuses to say so if backends were set one by one
        return False
    of_cpu = getattr(torch.backends.mkldnn, "matmul", None)  # since torch 2.9
    return getattr(of_cpu, "fp32_precision", "none") in ("none", "ieee")
