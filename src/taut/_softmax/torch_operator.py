"""What the compiled kernel computes as operators of PyTorch, for torch.compile.

The graph holds one node for the exact constants and one for their derivative. Unrolled, the search
for a root and its derivative are thousands of nodes, which take minutes to compile. An operator
runs what runs without torch.compile, so NaN and +inf are refused as well. Only on CPUs. Importing
this module imports torch.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from taut._softmax.kernel import imported_driver
from taut._softmax.kernel.found import FOUND
from taut._softmax.torch_function import compiled_constants, compiled_gradient, differentiable

# Six lines, and what the derivative needs
constant_lines = torch.library.custom_op(
    "taut::constants",
    compiled_constants,
    mutates_args=(),
    schema="(Tensor x, float scale) -> (Tensor, Tensor)",
)
_gradient = torch.library.custom_op(
    "taut::constants_gradient",
    compiled_gradient,
    mutates_args=(),
    schema="(Tensor x, Tensor found, Tensor one, Tensor two, float scale) -> Tensor",
)


@constant_lines.register_fake
def _lines_like(x: torch.Tensor, scale: float) -> tuple[torch.Tensor, torch.Tensor]:
    found = x.new_empty((FOUND, math.prod(x.shape[:-1])), dtype=torch.float64)
    return x.new_empty((6, *x.shape[:-1])), found


@_gradient.register_fake
def _gradient_like(
    x: torch.Tensor, found: torch.Tensor, one: torch.Tensor, two: torch.Tensor, scale: float
) -> torch.Tensor:
    return x.new_empty(x.shape)


def _remember(ctx: Any, inputs: Any, output: Any) -> None:
    """What the derivative needs."""
    x, ctx.scale = inputs
    ctx.save_for_backward(x, output[1])


def _backward(ctx: Any, grad: torch.Tensor, _found: Any) -> tuple[torch.Tensor, None]:
    """From ``grad`` of the six lines: all three sides of a constant have its derivative."""
    x, found = ctx.saved_tensors
    one, two = grad[:3].sum(0), grad[3:].sum(0)
    gradient = _gradient(x.detach(), found, one.detach(), two.detach(), ctx.scale)
    if torch.is_grad_enabled():  # a derivative of the derivative may be asked for
        return differentiable(gradient, x, one, two, ctx.scale), None
    return gradient, None


constant_lines.register_autograd(_backward, setup_context=_remember)


@torch.library.custom_op(
    "taut::lower_sides",
    mutates_args=(),
    schema="(Tensor x, Tensor two, float q, float scale) -> (Tensor, Tensor)",
)
def lower_sides(
    x: torch.Tensor, two: torch.Tensor, q: float, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """A lower bound of λ‖M‖_q of every row, 2 < q, and the direction that reaches it: constants.

    ``two`` is λ‖M‖₂ of the rows.
    """
    # All steps are taken, as the derivative of the bound rests on the direction.
    found, directions = imported_driver().row_lower_sides(
        x.detach().numpy(), two.detach().numpy() / scale, q, scale, True, torch.get_num_threads()
    )
    return torch.from_numpy(found), torch.from_numpy(directions)


@lower_sides.register_fake
def _sides_like(
    x: torch.Tensor, two: torch.Tensor, q: float, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    wide = torch.float64
    return x.new_empty(x.shape[:-1], dtype=wide), x.new_empty(x.shape, dtype=wide)
