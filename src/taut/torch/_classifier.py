"""How far an input of a classifier may move, in l2, before its class can change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn

from taut._checks import whole_number
from taut.torch._attack import smallest_margin
from taut.torch._certificate import Certificate
from taut.torch._certify import certify
from taut.torch._domain import At
from taut.torch._numbers import Numbers, times
from taut.torch._question import ask


@dataclass(frozen=True)
class CertifiedRadius:
    """What :func:`certified_radius` found, one number for each input.

    Attributes
    ----------
    radius
        No input nearer than this in l2, over all of its tokens or pixels (as the model gets them),
        is of another class; 0 where nothing could be shown, and for ties and constant classifiers.
    predicted, margin
        The class, and how far its logit is ahead of the next.
    lipschitz
        Constant of the features before the last linear layer, within the radius.
    rounding
        How far rounding can move the logits of the network as executed; it is taken off the margin.
    """

    radius: Numbers
    predicted: Numbers
    margin: Numbers
    lipschitz: Numbers
    rounding: Numbers
    _module: nn.Module = field(repr=False)
    _inputs: torch.Tensor = field(repr=False)
    _mask: torch.Tensor | None = field(repr=False)

    def attack(self, *, steps: int = 40, restarts: int = 2, seed: int = 0) -> Numbers:
        """Smallest margin that projected gradient steps find inside the radius.

        It must stay positive where the radius is; a search can refute a radius, not prove it.
        """
        question, _ = ask(self._module, At(self._inputs), None, self._mask, None, "l2", seed)
        return smallest_margin(question, self.predicted, self.radius, steps, restarts)


def certified_radius(
    module: nn.Module,
    inputs: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    rounding: bool = True,
    steps: int = 14,
) -> CertifiedRadius:
    """Radius around each input within which a classifier's answer provably does not change.

    The logit of class y stays ahead of that of j within r if r·L(r)·‖w_y − w_j‖ is less than the
    margin between them, L(r) being the constant of the features within r and w the rows of the last
    linear layer: this layer is taken exactly, where margin/(√2·L) with L of all logits takes the
    worst pair of classes for every pair.

    Parameters
    ----------
    module
        A classifier that ends in a linear layer, one row of logits for each input.
    inputs, mask
        As in :func:`certify`.
    rounding
        Whether the network is the one that is executed, whose rounding is then taken off the
        margin, or the one in exact arithmetic. In float32 a deep network may leave nothing.
    steps
        How many radii are tried.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(
    ...     torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)
    ... ).double()
    >>> found = certified_radius(net, torch.randn(5, 4, dtype=torch.float64))
    >>> bool((found.radius > 0).all() and (found.attack() > 0).all())
    True
    """
    steps = whole_number(steps, name="steps", least=1)
    here = certify(module, At(inputs), mask=mask, measure=False)
    ahead, pairs, predicted = _margins(here)
    limit = _allowed(here, ahead, pairs, rounding)
    low, high = np.zeros_like(limit), limit
    radius = limit / 2
    lipschitz, error = here.head.features.lip, here.rounding  # type: ignore[union-attr]
    for _ in range(steps):
        if not radius.any():
            break
        tried = certify(module, At(inputs, torch.from_numpy(radius)), mask=mask, measure=False)
        holds = radius <= _allowed(tried, ahead, pairs, rounding)
        low, high = np.where(holds, radius, low), np.where(holds, high, radius)
        lipschitz = np.where(holds, tried.head.features.lip, lipschitz)  # type: ignore[union-attr]
        error = np.where(holds, tried.rounding, error)
        radius = np.where(low > 0, (low + high) / 2, radius / 16)
    margin = np.where(np.eye(ahead.shape[1], dtype=bool)[predicted], np.inf, ahead).min(axis=1)
    return CertifiedRadius(low, predicted, margin, lipschitz, error, module, inputs, mask)


def _margins(certificate: Certificate) -> tuple[Numbers, Numbers, Any]:
    """Margins to every class, lengths of the differences of rows of the last layer, classes."""
    head, output = certificate.head, certificate.output
    if head is None or output.centre is None or output.centre.shape[1] != 1:
        raise TypeError(
            "a classifier must end in a linear layer that gives one row of logits for each input; "
            "for others take margin/(√2·certify(...).bound.upper)"
        )
    logits = output.centre[:, 0].cpu().numpy()
    if logits.shape[1] < 2:
        raise ValueError("a classifier has at least two classes")
    predicted = logits.argmax(axis=1)
    weight = head.weight.detach().double().cpu().numpy()
    ahead = np.take_along_axis(logits, predicted[:, None], axis=1) - logits
    pairs = np.linalg.norm(weight[predicted][:, None] - weight[None], axis=2) * (1 + 1e-13)
    return ahead, pairs, predicted


def _allowed(certificate: Certificate, ahead: Numbers, pairs: Numbers, lost: bool) -> Numbers:
    """The radius that a constant would allow: the smallest margin over what it moves by."""
    assert certificate.head is not None
    constant = times(certificate.head.features.lip[:, None], pairs)
    # The margins themselves were computed in float64, which is not exact either.
    error = certificate.rounding if lost else certificate.rounding_of(2.0**-52)
    spare = ahead * (1 - 1e-12) - times(2**0.5, error)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(pairs == 0, np.where(spare > 0, np.inf, 0.0), spare / constant)
    each = np.where(np.isnan(each), 0.0, each)
    same = np.arange(ahead.shape[1])[None] == ahead.argmin(axis=1)[:, None]
    allowed = np.where(same, np.inf, each).min(axis=1)
    return np.where(np.isfinite(allowed), np.maximum(allowed * (1 - 1e-12), 0.0), 0.0)
