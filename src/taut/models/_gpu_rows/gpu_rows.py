"""The numbers of rows of attention on a GPU: when the Triton kernel is used, and when not."""

from __future__ import annotations

import importlib.util
import warnings

import torch
from torch import Tensor

from taut.models._gpu_rows.agreement import Numbers, disagreement

DTYPES = (torch.float32, torch.float16, torch.bfloat16)

# Whether the kernel may be used, by device and precision: it is compared once a process.
_trusted: dict[tuple[torch.device, torch.dtype], bool] = {}


@torch.no_grad()
def row_numbers(
    query: Tensor,
    key: Tensor,
    bias: Tensor | None,
    factor: float,
    causal_offset: int | Tensor | None = None,
    positions: Tensor | None = None,
) -> dict[str, Tensor] | None:
    """The numbers of every row of softmax(factor·qkᵀ + bias), or None where there is no kernel.

    No matrix of scores is held. The kernel needs a GPU that PyTorch calls ``cuda``, the triton
    package, and queries in float32, float16 or bfloat16. In each process it is compared with
    ``portable_rows`` on a few hard rows, once for each device and precision; if it disagrees or
    fails, there is a warning and None from then on.

    Parameters
    ----------
    query
        Queries (batch, heads, queries, width): all or a sample of them.
    key
        Keys (batch, key_heads, keys, width). Groups of heads // key_heads heads share keys.
    bias
        None, numbers to add to the scores, or booleans that are True where a key is seen;
        broadcastable to (batch, heads, queries, keys) and not copied.
    factor
        What qkᵀ is multiplied with, such as width ** -0.5. It is rounded to float32.
    causal_offset
        None, or by how much a query sees beyond its position: the keys j ≤ position + offset.
        An integer, or a tensor of them for the samples of the batch.
    positions
        The position of each query, (queries,) or (batch, queries); 0, 1, 2, ... if None.

    Returns
    -------
    Tensors (batch, heads, queries), float32 and for "broken" boolean. Keys with a score up to
    -9000 count as hidden. A broken row has NaN everywhere.

    - "top", "lowest": the largest and the smallest visible score; -inf and +inf where none is
    - "seen": the number of visible keys
    - "log_sum": log Σ exp(z − top), so that the largest weight is exp(-log_sum)
    - "mean": Σ p·(z − top), so that the entropy is log_sum − mean
    - "first": the weight of the first key
    - "leader": the first key with the largest score, exact up to 2²⁴ keys
    - "one", "two": the constants in l1 (or l∞) and in l2
    - "broken": whether a score is NaN or +inf

    At given float32 scores, a number errs by (8 + ln keys)·2⁻²³ of itself at most, beside 2⁻¹²⁵;
    this is an estimate and no proof. Scores are sums of ``width`` products in float32, never TF32.

    Examples
    --------
    >>> query, key = torch.randn(1, 8, 5, 64), torch.randn(1, 2, 100, 64)
    >>> row_numbers(query, key, None, 0.125) is None  # not on a GPU
    True
    """
    last = last_keys(query, key, causal_offset, positions)
    _check(query, key, bias)
    place = (query.device, query.dtype)
    if not on_gpu(query) or query.dtype not in DTYPES or not _trusted.get(place, True):
        return None
    if importlib.util.find_spec("triton") is None or key.shape[2] == 0:
        return None
    try:
        rows = kernel()
        if place not in _trusted:
            wrong = disagreement(rows, *place)
            _trusted[place] = not wrong
            if wrong:
                _warn(place, f"disagrees with float64: {wrong}")
                return None
        return rows(query, key, bias, factor, last)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # compilers and drivers fail in many ways
        _trusted[place] = False
        _warn(place, f"failed: {type(error).__name__}: {error}")
        return None


def last_keys(
    query: Tensor, key: Tensor, causal_offset: int | Tensor | None, positions: Tensor | None
) -> Tensor:
    """The last key that each query sees, (batch or 1, queries)."""
    queries, keys = query.shape[-2], key.shape[-2]
    if causal_offset is None:
        return torch.full((1, queries), keys - 1, device=query.device)
    if positions is None:
        positions = torch.arange(queries)
    if positions.shape[-1:] != (queries,):
        raise ValueError(f"positions must be of shape {(queries,)}, got {tuple(positions.shape)}")
    offset = torch.as_tensor(causal_offset).to(query.device, torch.int64).reshape(-1, 1)
    return positions.to(query.device, torch.int64).reshape(-1, queries) + offset


def on_gpu(query: Tensor) -> bool:
    """Whether a tensor is where the kernel runs."""
    return query.device.type == "cuda"


def kernel() -> Numbers:
    """The Triton kernel; importing it imports triton."""
    from taut.models._gpu_rows.triton_rows import triton_rows

    return triton_rows


def _warn(place: tuple[torch.device, torch.dtype], why: str) -> None:
    device, dtype = place
    warnings.warn(
        f"the Triton kernel for attention rows is not used on {device} in {dtype}: it {why}. "
        "Rows are measured without it.",
        RuntimeWarning,
        stacklevel=3,
    )


def _check(query: Tensor, key: Tensor, bias: Tensor | None) -> None:
    shapes = f"got query {tuple(query.shape)} and key {tuple(key.shape)}"
    if query.ndim != 4 or key.ndim != 4:
        raise ValueError(
            f"query and key must have four axes (batch, heads, tokens, width), {shapes}"
        )
    if query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        raise ValueError(f"query and key must have the same batch and width, {shapes}")
    if not key.shape[1] or query.shape[1] % key.shape[1]:
        raise ValueError(f"the heads of query must be a multiple of those of key, {shapes}")
    if bias is not None:
        wanted = (*query.shape[:3], key.shape[2])
        try:
            bias.expand(wanted)
        except RuntimeError:
            raise ValueError(
                f"bias must be broadcastable to {wanted}, got {tuple(bias.shape)}"
            ) from None
