"""The norm of a network's derivative at given inputs: exactly, or from random directions.

The rules compute the network in float64, whatever precision it runs in, and that is differentiated:
no constants are multiplied, so nothing is lost by the number of layers.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import torch
from torch import nn

from taut._base.bound import Bound
from taut._base.checks import whole_number
from taut._base.domain import At
from taut._base.norm import FROBENIUS
from taut._base.rounding import Numbers
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.interpreter import Interpreter
from taut.networks.linearised import Linearised
from taut.networks.question import Question, ask
from taut.networks.rule_check import check_rule

SMALL = 1 << 11  # rows or columns of a derivative that is written out
FITS = 1 << 27  # numbers in it, one gigabyte
CHUNK = 32
# For rounding in float64, relative and absolute: an estimate, generous next to the errors seen, and
# the bounds say so. The second is for slopes that are left when large numbers cancel, as of
# saturated activations.
SLACK, CANCELLED = 1e-8, 1e-12


@torch.no_grad()
@without_autocast()
def local_lipschitz(
    module: nn.Module,
    inputs: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    context: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    method: Literal["auto", "jacobian", "probe"] = "auto",
    directions: int = 12,
    steps: int = 20,
    failure: float = 1e-12,
    seed: int = 0,
) -> Bound:
    """Norm of the derivative of a module at given inputs, in l2, one for each input.

    Parameters
    ----------
    module, inputs, mask, context, context_mask
        As in :func:`certify`; the context is fixed.
    method
        ``"jacobian"`` writes the derivative out and takes its largest singular value: exact.
        ``"probe"`` bounds it from ``steps`` powers of it along random ``directions``: the upper
        side fails with a probability of at most ``failure``, whatever the network (theorem probe).
        ``"auto"`` takes the first where the derivative is small.
    directions, steps, failure, seed
        Settings of the second method. ``failure`` is for each input. More steps bring the sides
        together, about as (1/t)^(1/(2·steps)) with t = failure^(1/directions)·√(π/2).

    Notes
    -----
    This is about the network in float64, as the rules compute it, with the derivative that autograd
    takes at kinks (0 for ReLU at 0).

    The sides lie 1e-8 of the value and 1e-12 outward of what was computed. That covers the rounding
    of the singular value; for the rounding of the derivative itself, which autograd computes layer
    by layer, it is an estimate, and ``rounding`` is ``"estimated"``. Values far below 1 that are
    left when large numbers cancel, as slopes of saturated activations, are known to about 1e-12.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> found = local_lipschitz(layer, torch.randn(2, 4, 8))
    >>> found.kind, len(found)
    ('exact', 2)
    """
    if method not in ("auto", "jacobian", "probe"):
        raise ValueError(f"method must be auto, jacobian or probe, got {method!r}")
    if context is not None and not isinstance(context, torch.Tensor):
        raise TypeError("the context of local_lipschitz is fixed: give a tensor")
    directions = whole_number(directions, name="directions", least=1)
    steps = whole_number(steps, name="steps", least=1)
    if not (isinstance(failure, float) and 0 < failure < 1):
        raise ValueError(f"failure must be a probability in (0, 1), got {failure}")
    question, device = ask(module, At(inputs), context, mask, context_mask, "l2", seed)
    run = Interpreter("l2", 0.0, device, dry=True)
    y = question.answer(run)
    run.done()
    check_rule(question, y, device)
    with torch.enable_grad():
        point = inputs.detach().to(device, torch.float64)
        derivative = Linearised(lambda x: _network(question, x, device), [point], 1)
        width, height = point[0].numel(), derivative.output[0].numel()
        if method == "auto":
            fits = width * height * len(point) <= FITS
            method = "jacobian" if min(width, height) <= SMALL and fits else "probe"
        if method == "jacobian":
            return _exact(derivative, width, height)
        return _probed(derivative, directions, steps, failure, seed)


def _network(question: Question, x: torch.Tensor, device: torch.device) -> torch.Tensor:
    """The network in float64, as the rules compute it."""
    centre = question.at(x).answer(Interpreter("l2", 0.0, device, dry=True)).centre
    assert centre is not None
    return centre


def _exact(derivative: Linearised, width: int, height: int) -> Bound:
    """Row by row or column by column, whichever are fewer; then the largest singular value."""
    few = min(width, height)
    leaf = derivative.moving[0] if width < height else derivative.output
    parts = []
    for start in range(0, few, CHUNK):
        chosen = torch.arange(start, min(start + CHUNK, few))
        units = torch.zeros(len(chosen), *leaf.shape, dtype=leaf.dtype, device=leaf.device)
        units.flatten(2)[torch.arange(len(chosen)), :, chosen] = 1.0
        if width < height:
            found = derivative.push([units], many=True)
        else:
            found = derivative.pull(units, many=True)[0]
        parts.append(found.detach().flatten(2))
    rows = torch.cat(parts).transpose(0, 1)  # (batch, few, many)
    if not bool(torch.isfinite(rows).all()):
        raise ValueError("the derivative overflows at these inputs")
    scale = rows.abs().amax(dim=(1, 2), keepdim=True).clamp(min=1e-300)
    unit = rows / scale  # so that squares neither overflow nor vanish
    top = torch.linalg.eigvalsh(unit @ unit.mT)[:, -1].clamp(min=0.0).sqrt()
    largest = (top * scale[:, 0, 0]).cpu().numpy()
    return Bound(
        *_sides(largest, largest), "exact", FROBENIUS, "at these inputs",
        ("spectral",), largest, rounding="estimated",
    )  # fmt: skip


def _sides(lower: Numbers, upper: Numbers) -> tuple[Numbers, Numbers]:
    below = np.maximum(np.nan_to_num(lower) * (1 - SLACK) - CANCELLED, 0.0)
    return below, np.nan_to_num(upper, nan=np.inf, posinf=np.inf) * (1 + SLACK) + CANCELLED


def _probed(
    derivative: Linearised, directions: int, steps: int, failure: float, seed: int
) -> Bound:
    """Theorem probe: ‖D‖^{2k} ≤ max‖(DᵀD)^k g‖/t but for a probability (t√(2/π))^{directions}."""
    source = torch.Generator().manual_seed(seed)
    (v,) = derivative.random(source, many=directions)
    logs = torch.zeros(directions, derivative.batch, dtype=torch.float64)
    lower = torch.zeros(derivative.batch, dtype=torch.float64)
    flat = [1] * (v.ndim - 2)
    for _ in range(steps):
        size = v.flatten(2).norm(dim=2)
        logs += size.log().cpu()
        v = v / size.clamp(min=1e-300).reshape(*size.shape, *flat)
        pushed = derivative.push([v], many=True).detach()
        lower = torch.maximum(lower, pushed.flatten(2).norm(dim=2).amax(dim=0).cpu())
        (v,) = derivative.pull(pushed, many=True)
        v = v.detach()
    logs += v.flatten(2).norm(dim=2).log().cpu()
    t = failure ** (1 / directions) * math.sqrt(math.pi / 2)
    upper = ((logs.amax(dim=0) - math.log(t)) / (2 * steps)).exp()
    upper = torch.nan_to_num(upper, nan=math.inf)
    upper = torch.maximum(upper, lower)
    where = f"at these inputs, with probability 1 - {failure:g} over random directions"
    return Bound(
        *_sides(lower.numpy(), upper.numpy()), "bracket", FROBENIUS,
        where, ("probe",), rounding="estimated",
    )  # fmt: skip
