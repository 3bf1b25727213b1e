"""A lower bound by power iteration on the derivative: evidence, beside the certificate."""

from __future__ import annotations

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from taut._base.bound import Bound
from taut._base.domain import At
from taut.networks.linearised import Linearised, Tensors
from taut.networks.question import Question

STEPS = 12
POINTS = 4


def lower_bound(question: Question, bound: Bound) -> Bound:
    """The largest derivative found at the given inputs, or at random ones of the domain."""
    if any(weight.is_inference() for weight in question.module.parameters()):
        raise ValueError(
            "the weights were made in torch.inference_mode and have no derivatives: load them "
            "outside of it, or pass measure=False"
        )
    with torch.inference_mode(False), torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        derivative = Linearised(question.call, question.points(POINTS), question.moving)
        found = _largest(derivative, question)
    if not isinstance(question.domain, At):
        found = found.max(dim=0, keepdim=True).values
    # Products that err by some thousand units in the last place: an estimate.
    slack = min(1000 * torch.finfo(found.dtype).eps, 0.5)
    values = (found.double() * (1 - slack)).clamp(min=0.0).cpu().numpy()
    if (values > bound.upper).any():
        raise RuntimeError(
            f"measured {values.max():g} above the certified {bound.upper.max():g}: this is a bug "
            "in taut or in a registered rule; please report it"
        )
    return Bound(
        values, values + float("inf"), "lower", bound.norm, bound.domain, (),
        rounding="estimated",
    )  # fmt: skip


def _largest(derivative: Linearised, question: Question) -> torch.Tensor:
    """Largest ‖Dv‖/‖v‖ of each sample that the power method meets."""
    v = derivative.random(torch.Generator().manual_seed(question.seed))
    best = derivative.output.new_zeros(derivative.batch)
    for _ in range(STEPS):
        v = _unit(v, question.norm)
        pushed = derivative.push(v)
        if question.norm == "token":
            size, index = pushed.norm(dim=-1).max(dim=1)
            u = torch.zeros_like(pushed)
            every = torch.arange(derivative.batch)
            u[every, index] = pushed[every, index]
        else:
            size, u = pushed.flatten(1).norm(dim=1), pushed
        # an overflow is not evidence
        best = torch.maximum(best, torch.nan_to_num(size.detach(), nan=0.0, posinf=0.0))
        v = derivative.pull(u.detach())
    return best


def _unit(v: Tensors, norm: str) -> Tensors:
    """Of unit size in the norm: all of it, or every token by itself (an image is one token)."""
    tiny = 1e-30
    if norm == "token":
        return [
            part / part.norm(dim=-1, keepdim=True).clamp(min=tiny)
            if part.ndim <= 3
            else part / part.flatten(1).norm(dim=1).clamp(min=tiny).reshape(-1, 1, 1, 1)
            for part in v
        ]
    total = torch.stack([part.flatten(1).square().sum(dim=1) for part in v]).sum(dim=0)
    size = total.sqrt().clamp(min=tiny)
    return [part / size.reshape(-1, *[1] * (part.ndim - 1)) for part in v]
