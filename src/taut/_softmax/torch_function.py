"""The exact constants as a function of PyTorch with a derivative of its own, compiled as they are.

Only on CPUs, and where nothing is traced (``torch_operator.py`` is for torch.compile). Importing
this module imports torch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch._C._functorch import is_legacy_batchedtensor

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
    x: torch.Tensor,
    found: torch.Tensor,
    one: torch.Tensor | None,
    two: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """Gradient with respect to the logits, from those with respect to the two constants."""
    first, second = (None if given is None else given.detach().numpy() for given in (one, two))
    grad, done = imported_driver().row_gradients(
        x.detach().numpy(), found.numpy(), first, second, scale, torch.get_num_threads
    )
    if done:
        return torch.from_numpy(grad)
    with torch.no_grad():
        return through_formula(x, one, two, scale).contiguous()


def through_formula(
    x: torch.Tensor, one: torch.Tensor | None, two: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """The same gradient, which autograd can differentiate once more where gradients are on."""
    again = torch.is_grad_enabled()
    x = x if again else x.detach().requires_grad_()
    zero = x.new_zeros(x.shape[:-1])
    grads = tuple(zero if given is None else given for given in (one, two))
    with torch.enable_grad():
        values = attach(zero, zero, x, scale)
    (found,) = torch.autograd.grad(values, x, grads, create_graph=again)
    return found


def differentiable(
    found: torch.Tensor,
    x: torch.Tensor,
    one: torch.Tensor | None,
    two: torch.Tensor | None,
    scale: float,
) -> torch.Tensor:
    """The gradient ``found``, which is more accurate, with the derivative of the formula."""
    formula = through_formula(x, one, two, scale)
    return found + torch.where(formula.isfinite(), formula - formula.detach(), 0.0)


def _sum_of_given(grads: tuple[torch.Tensor | None, ...]) -> torch.Tensor | None:
    """The derivative of a constant, which all three of its sides have; None if none is given."""
    given = [grad for grad in grads if grad is not None]
    return sum(given[1:], given[0]) if given else None


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
        one, two = _sum_of_given(grads[:3]), _sum_of_given(grads[3:])
        if any(is_legacy_batchedtensor(g) for g in (one, two) if g is not None):
            return through_formula(x, one, two, ctx.scale), None
        found = compiled_gradient(x, ctx.found, one, two, ctx.scale)
        if torch.is_grad_enabled():  # a derivative of the derivative may be asked for
            return differentiable(found, x, one, two, ctx.scale), None
        return found, None
