"""Launch the Triton kernel. Importing this module imports triton."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from taut.models._gpu_rows.triton_kernel import ADDED, BOOLEAN, NO_BIAS, NUMBERS, rows_kernel


def triton_rows(
    query: Tensor, key: Tensor, bias: Tensor | None, factor: float, last: Tensor
) -> dict[str, Tensor]:
    """The numbers of every row of softmax(factor·qkᵀ + bias), see :func:`row_numbers`.

    ``last`` is the last key that a query sees, (batch, queries), int64. Arguments are not checked.
    """
    batch, heads, queries, width = query.shape
    keys = key.shape[-2]
    shape = (batch, heads, queries)
    out = torch.empty((len(NUMBERS), *shape), dtype=torch.float32, device=query.device)
    kind, term = NO_BIAS, query  # a pointer that is not used
    if bias is not None:
        term = bias.expand(*shape, keys)
        kind = BOOLEAN if bias.dtype == torch.bool else ADDED
        term = term.view(torch.uint8) if bias.dtype == torch.bool else term
    rows = min(32, max(16, triton.next_power_of_2(queries)))
    blocks = triton.cdiv(queries, rows)
    last = last.expand(batch, queries)
    if out.numel():
        # Without contraction to fused operations the elements are rounded as they are written.
        rows_kernel[(batch * heads * blocks,)](
            query, key, term, last, out, factor, *query.stride(), *key.stride(), *term.stride(),
            *last.stride(), heads, heads // key.shape[1], queries, keys, blocks, out[0].numel(),
            WIDTH=width, CHUNK=min(32, max(16, triton.next_power_of_2(width))), BIAS=kind,
            ROWS=rows, COLUMNS=64, num_warps=8, enable_fp_fusion=False,
        )  # fmt: skip
    found = dict(zip(NUMBERS, out.unbind(0), strict=True))
    found["broken"] = found["broken"] > 0
    return found
