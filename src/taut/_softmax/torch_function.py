"""The exact constants as a function of PyTorch with a derivative of its own, compiled as they are.

Only on CPUs, and where nothing is traced (``torch_operator.py`` is for torch.compile). Importing
this module imports torch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from taut._base.bound_sides import check_sides
from taut._base.checks import check_logits
from taut._softmax.derivatives import attach
from taut._softmax.secular import constants
from taut._softmax.sides import exact_sides, rounded_up


def constant_lines(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Lower, value and upper of λ‖M‖₁ and of λ‖M‖₂ of every row: six lines, differentiable."""
    found: torch.Tensor = _Constants.apply(x, scale)  # type: ignore[no-untyped-call]
    return found


def compiled_constants(x: torch.Tensor, scale: float) -> torch.Tensor:
    """The same without a derivative."""
    from taut._softmax.kernel.driver import row_constants

    x = x.detach()
    out, ordered = row_constants(x.numpy(), scale, rounded_up(scale / 2, x), torch.get_num_threads)
    if ordered:
        return torch.from_numpy(out)
    # Logits at the end of the range are left to the portable code.
    check_logits(torch, x.amax(-1), name="x")
    one, two, relative, absolute = constants(x, scale)
    lines = []
    for value in (one, two):
        sides = exact_sides(value, relative, absolute, scale / 2, ())
        check_sides(sides.lower, sides.upper, sides.estimate)
        lines += [sides.lower, sides.estimate, sides.upper]
    return torch.stack(lines)


def compiled_gradient(
    x: torch.Tensor, one: torch.Tensor, two: torch.Tensor, scale: float
) -> torch.Tensor:
    """Gradient with respect to the logits, from those with respect to the two constants."""
    from taut._softmax.kernel.driver import row_gradients

    weights = torch.stack([one.reshape(-1), two.reshape(-1)]).to(torch.float64)
    rows = x.detach().reshape(-1, x.shape[-1])
    found, done = row_gradients(rows.numpy(), weights.numpy(), scale, torch.get_num_threads())
    if done:
        return torch.from_numpy(found).reshape(x.shape)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return _through_formula(leaf, one, two, scale).detach().contiguous()


def remember(ctx: Any, inputs: Any, output: Any) -> None:
    """What the derivative needs."""
    x, scale = inputs
    ctx.save_for_backward(x)
    ctx.scale = scale


def _through_formula(
    x: torch.Tensor, one: torch.Tensor, two: torch.Tensor, scale: float
) -> torch.Tensor:
    """The same gradient, so that autograd can differentiate it once more."""
    zero = x.new_zeros(x.shape[:-1])
    (found,) = torch.autograd.grad(attach(zero, zero, x, scale), x, (one, two), create_graph=True)
    return found


def derivative(
    ctx: Any, grad: torch.Tensor, gradient: Callable[..., torch.Tensor]
) -> tuple[torch.Tensor, None]:
    """From ``grad`` of the six lines: all three sides of a constant have its derivative."""
    (x,) = ctx.saved_tensors
    one, two = grad[:3].sum(0), grad[3:].sum(0)
    if torch.is_grad_enabled():  # a derivative of the derivative may be asked for
        return _through_formula(x, one, two, ctx.scale), None
    return gradient(x, one, two, ctx.scale), None


def _backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
    return derivative(ctx, grad, compiled_gradient)


class _Constants(torch.autograd.Function):
    """What autograd sees."""

    @staticmethod
    def forward(x: torch.Tensor, scale: float) -> torch.Tensor:
        return compiled_constants(x, scale)

    setup_context = staticmethod(remember)
    backward = staticmethod(_backward)
