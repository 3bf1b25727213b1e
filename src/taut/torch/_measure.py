"""A lower bound by power iteration on the derivative: evidence, beside the certificate."""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from taut._bound import Bound
from taut.torch._domain import At
from taut.torch._question import Question

STEPS = 12
POINTS = 4


def lower_bound(question: Question, bound: Bound) -> Bound:
    """The largest derivative that was found at the given inputs, or at random ones of the domain."""
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        found = _largest_derivative(question)
    local = isinstance(question.domain, At)
    if not local:
        found = found.max(dim=0, keepdim=True).values
    # The products err by some thousand units in the last place at most.
    slack = 1000 * torch.finfo(found.dtype).eps
    values = (found.double() * (1 - slack)).clamp(min=0.0).cpu().numpy()
    if (values > bound.upper).any():
        raise RuntimeError(
            f"measured {values.max():g} above the certified {bound.upper.max():g}: this is a bug in "
            "taut or in a registered rule; please report it"
        )
    return Bound(values, values + float("inf"), "lower", bound.norm, bound.domain, ())


def _largest_derivative(question: Question) -> torch.Tensor:
    """‖Dv‖/‖v‖ for each sample after some steps of the power method, in float64 where possible."""
    points = question.points(POINTS)
    moving = 2 if isinstance(question.context, At) else 1
    if not isinstance(question.domain, At):
        moving = len(points)
    leaves = [p.clone().requires_grad_(i < moving) for i, p in enumerate(points)]
    y = question.call(*leaves)
    batch = len(points[0])
    y = y.reshape(batch, -1, y.shape[-1])
    dual = torch.zeros_like(y, requires_grad=True)
    pulled = torch.autograd.grad(y, leaves[:moving], dual, create_graph=True)
    source = torch.Generator().manual_seed(question.seed)
    v = [torch.randn(leaf.shape, generator=source).to(leaf) for leaf in leaves[:moving]]
    best = y.new_zeros(batch)
    for _ in range(STEPS):
        v = _unit(v, question.norm)
        (pushed,) = torch.autograd.grad(pulled, dual, v, retain_graph=True)
        if question.norm == "token":
            sizes = pushed.norm(dim=-1)
            size, index = sizes.max(dim=1)
            u = torch.zeros_like(pushed)
            picked = torch.arange(batch)
            u[picked, index] = pushed[picked, index]
        else:
            size, u = pushed.flatten(1).norm(dim=1), pushed
        best = torch.maximum(best, torch.nan_to_num(size.detach()))
        v = list(torch.autograd.grad(y, leaves[:moving], u.detach(), retain_graph=True))
    return best


def _unit(v: list[torch.Tensor], norm: str) -> list[torch.Tensor]:
    """Of unit size in the norm: all of it, or every token by itself (an image is one token)."""
    tiny = 1e-30
    if norm == "token":
        return [
            part / part.norm(dim=-1, keepdim=True).clamp(min=tiny)
            if part.ndim <= 3
            else part / part.flatten(1).norm(dim=1).clamp(min=tiny).reshape(-1, 1, 1, 1)
            for part in v
        ]
    total = sum(part.flatten(1).square().sum(dim=1) for part in v)
    size = torch.as_tensor(total).sqrt().clamp(min=tiny)
    return [part / size.reshape(-1, *[1] * (part.ndim - 1)) for part in v]
