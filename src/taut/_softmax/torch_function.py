"""The exact constants as a function of PyTorch with a derivative of its own, compiled as they are.

Only on CPUs, and where nothing is traced (``torch_operator.py`` is for torch.compile). Importing
this module imports torch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from taut._base.bound_sides import check_sides
from taut._base.checks import check_logits
from taut._softmax.derivatives import attach
from taut._softmax.kernel import imported_driver
from taut._softmax.kernel.found import FOUND
from taut._softmax.secular import constants
from taut._softmax.sides import exact_sides, rounded_up


def constant_lines(x: torch.Tensor, scale: float) -> tuple[torch.Tensor, ...]:
    """Lower, value and upper of λ‖M‖₁ and of λ‖M‖₂ of every row: six tensors, differentiable."""
    lines: tuple[torch.Tensor, ...] = _Constants.apply(x, scale)  # type: ignore[no-untyped-call]
    return lines


def compiled_constants(x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as six lines without a derivative, and what the derivative needs of every row."""
    x = x.detach()
    found = np.empty((FOUND, math.prod(x.shape[:-1])))
    out, ordered = imported_driver().row_constants(
        x.numpy(), scale, rounded_up(scale / 2, x), torch.get_num_threads, found
    )
    if ordered:
        return torch.from_numpy(out), torch.from_numpy(found)
    # Logits at the end of the range are left to the portable code.
    check_logits(torch, x.amax(-1), name="x")
    one, two, relative, absolute = constants(x, scale)
    lines = []
    for value in (one, two):
        sides = exact_sides(value, relative, absolute, scale / 2, ())
        check_sides(sides.lower, sides.upper, sides.estimate)
        lines += [sides.lower, sides.estimate, sides.upper]
    return torch.stack(lines), torch.zeros(found.shape, dtype=torch.float64)


def compiled_gradient(
    x: torch.Tensor, found: torch.Tensor, one: torch.Tensor, two: torch.Tensor, scale: float
) -> torch.Tensor:
    """Gradient with respect to the logits, from those with respect to the two constants."""
    grad, done = imported_driver().row_gradients(
        x.detach().numpy(), found.numpy(), one.detach().numpy(), two.detach().numpy(), scale,
        torch.get_num_threads(),
    )  # fmt: skip
    if done:
        return torch.from_numpy(grad)
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        return through_formula(leaf, one, two, scale).detach().contiguous()


def through_formula(
    x: torch.Tensor, one: torch.Tensor, two: torch.Tensor, scale: float
) -> torch.Tensor:
    """The same gradient, so that autograd can differentiate it once more."""
    zero = x.new_zeros(x.shape[:-1])
    (found,) = torch.autograd.grad(attach(zero, zero, x, scale), x, (one, two), create_graph=True)
    return found


def _sum_of_given(x: torch.Tensor, grads: tuple[torch.Tensor | None, ...]) -> torch.Tensor:
    """The derivative of a constant: all three of its sides have it."""
    given = [grad for grad in grads if grad is not None]
    return sum(given[1:], given[0]) if given else x.new_zeros(x.shape[:-1])


class _Constants(torch.autograd.Function):
    """What autograd sees."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> tuple[torch.Tensor, ...]:
        lines, found = compiled_constants(x, scale)
        ctx.save_for_backward(x)
        ctx.found, ctx.scale = found, scale
        ctx.set_materialize_grads(False)  # most sides are not asked for
        # Tensors of their own, which may be written to, rather than views of one
        host = lines.numpy()
        return tuple(torch.from_numpy(host[i, ...]) for i in range(len(host)))

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor, None]:
        (x,) = ctx.saved_tensors
        one, two = _sum_of_given(x, grads[:3]), _sum_of_given(x, grads[3:])
        if torch.is_grad_enabled():  # a derivative of the derivative may be asked for
            return through_formula(x, one, two, ctx.scale), None
        return compiled_gradient(x, ctx.found, one, two, ctx.scale), None
