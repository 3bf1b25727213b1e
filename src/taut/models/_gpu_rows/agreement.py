"""How far the numbers of the kernel may be from exact ones, and hard rows to compare them on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from taut.models._gpu_rows.portable_rows import portable_rows

EPS = 2.0**-23
# Relative error at given float32 scores, in units of EPS, beside ln(keys). A weight in units of the
# runner-up errs by 1.5 and by half its depth, of which weights have at most ln(keys) on average;
# sums over a block err by 3, ratios by 2. Under the interpreter constants erred by 1 at most.
BASE = 8.0
SMALLEST = 2.0**-125  # below this, float32 may be flushed to 0


class Example(NamedTuple):
    """Queries, keys, bias, factor and last visible keys, as the kernel takes them."""

    query: Tensor
    key: Tensor
    bias: Tensor | None
    factor: float
    last: Tensor
    exact: bool  # whether scores are computed without rounding


Numbers = Callable[[Tensor, Tensor, "Tensor | None", float, Tensor], dict[str, Tensor]]


def disagreement(rows: Numbers, device: torch.device, dtype: torch.dtype) -> str:
    """What the kernel ``rows`` gets wrong on hard rows, or an empty text."""
    for example in hard_rows(device, dtype):
        inputs = example[:5]
        wrong = difference(rows(*inputs), portable_rows(*inputs), score_error(example))
        if wrong:
            return wrong
    return ""


def difference(found: dict[str, Tensor], exact: dict[str, Tensor], error: Tensor) -> str:
    """The first number that is further from the exact one than rounding explains, or "".

    ``error`` is how far the scores of a row may be off. A change η of all scores of a row changes
    its weights, tail and constants by factors of at most e^(4η), to first order.
    """
    if not torch.equal(found["broken"], exact["broken"]):
        return "rows with NaN or infinity are not recognised"
    relative = (BASE + exact["seen"].clamp(min=1).log()) * EPS + 4 * error
    tail = -(-exact["log_sum"]).expm1()  # 1 − p₁
    for name, wanted in exact.items():
        if name == "broken":
            continue
        value = found[name].to(wanted.dtype)
        allowed = relative * wanted.abs() + SMALLEST
        if name in ("top", "lowest"):
            allowed = error + EPS * wanted.abs()
        elif name == "seen":
            allowed = torch.zeros_like(wanted)
        elif name == "leader":  # of scores that rounding moves, nearly equal ones may change places
            allowed = torch.where(error > 0, torch.inf, 0.0)
        elif name == "mean":
            allowed = allowed + 4 * error * tail
        same = (value == wanted) | (value.isnan() & wanted.isnan())
        wrong = ~(same | ((value - wanted).abs() <= allowed))
        if bool(wrong.any()):
            at = wrong.nonzero()[0].tolist()
            return f"{name} is {value[tuple(at)]:.9g} where it should be {wanted[tuple(at)]:.9g}"
    return ""


def score_error(example: Example) -> Tensor:
    """How far rounding may move the scores of every row: float32 sums of ``width`` products."""
    query, key, bias, factor, _, exact = example
    if exact:
        return torch.zeros(query.shape[:-1], dtype=torch.float64, device=query.device)
    groups = query.shape[1] // key.shape[1]
    lengths = key.double().abs().repeat_interleave(groups, dim=1)
    size = query.double().abs() @ lengths.transpose(-1, -2) * abs(factor)
    if bias is not None and bias.dtype != torch.bool:
        size = size + bias.double().nan_to_num(neginf=0.0).abs()
    return (query.shape[-1] + 4) * (EPS / 2) * size.amax(dim=-1)


def hard_rows(device: torch.device, dtype: torch.dtype) -> list[Example]:
    """Rows that a wrong kernel gets wrong: tied, peaked, flat, rising, hidden and broken ones."""
    generator = torch.Generator().manual_seed(0)
    keys = 150  # more than two blocks, and no whole number of them
    noise = torch.randn(16, keys, generator=generator)
    rows = noise * torch.logspace(-3, 2, 16)[:, None]
    rows[1] = 0.0  # all tied
    rows[2] = torch.arange(keys) / 64  # the largest changes in every block
    rows[3, [5, 140]] = 9.0  # the largest twice
    rows[4, 7], rows[4, 149] = 9.0, 9.0 - 2.0**-5  # nearly so
    rows[5] = -28.0
    rows[5, 130] = 0.0  # 1 − p₁ of 1e-10
    rows[6, 0], rows[6, 1:] = math.log(keys - 1), 0.0  # p₁ near ½
    rows[7] = noise[7] * 2.0**-20
    broken = torch.zeros(16, keys)
    broken[8:12, 3] = torch.tensor([math.nan, math.inf, -math.inf, -1e4])
    broken[12] = -math.inf
    broken[13, 1:] = -math.inf
    key = rows.T.contiguous()[None, None]
    everything = torch.full((1, 1), keys - 1)
    steep = torch.randn(2, 4, 20, 40, generator=generator) * 4
    fine = torch.randn(2, 2, keys, 40, generator=generator)
    slopes = -torch.rand(4, 1, keys, generator=generator)
    causal = torch.arange(20)[None] + torch.tensor([[0], [keys - 20]])
    examples = (
        (torch.eye(16)[None, None], key, broken, 1.0, everything, True),
        (steep, fine, slopes, 40**-0.5, causal, False),
        (steep, fine, torch.rand(2, 1, 20, keys, generator=generator) < 0.3, 0.5, causal, False),
    )
    return [
        Example(
            query.to(device, dtype), key.to(device, dtype),
            bias.to(device) if bias.dtype == torch.bool else bias.to(device, dtype),
            factor, last.to(device), exact,
        )
        for query, key, bias, factor, last, exact in examples
    ]  # fmt: skip
