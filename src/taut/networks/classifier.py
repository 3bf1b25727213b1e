"""How far an input of a classifier may move, in l2, before its class can change."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from taut._base.checks import whole_number
from taut._base.domain import At
from taut._base.matrix_norm import lengths
from taut._base.rounding import EPS, Numbers, down, enlarged, plus, root, times
from taut.networks.attack import smallest_margin
from taut.networks.certificate import Certificate
from taut.networks.certify import certify
from taut.networks.execution import precision
from taut.networks.question import ask


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
    execution_error
        How far rounding can move the logits of the network as executed, to first order.
    rounding
        ``"proved"`` if the radius holds with all rounding of its own proved, which it can be for
        the network in exact arithmetic; ``"estimated"`` if it rests on an error to first order.
    """

    radius: Numbers
    predicted: Numbers
    margin: Numbers
    lipschitz: Numbers
    execution_error: Numbers
    rounding: Literal["proved", "estimated"]
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
    executed: bool = True,
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
    executed
        Whether the radius is for the network as executed, whose rounding is then taken off the
        margin, or for exact arithmetic. In float32 a deep network may leave nothing.
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
    error = _centre_error(here, module, inputs)
    limit = _allowed(here, ahead, pairs, error, executed)
    low, high = np.zeros_like(limit), limit
    radius = limit / 2
    lipschitz, lost, proved = _features(here), here.execution_error, _is_proved(here)
    for _ in range(steps):
        if not radius.any():
            break
        tried = certify(module, At(inputs, torch.from_numpy(radius)), mask=mask, measure=False)
        holds = radius <= _allowed(tried, ahead, pairs, error, executed)
        low, high = np.where(holds, radius, low), np.where(holds, high, radius)
        lipschitz = np.where(holds, _features(tried), lipschitz)
        lost = np.where(holds, tried.execution_error, lost)
        proved = proved and (_is_proved(tried) or not holds.any())
        radius = np.where(low > 0, (low + high) / 2, radius / 16)
    margin = np.where(np.eye(ahead.shape[1], dtype=bool)[predicted], np.inf, ahead).min(axis=1)
    return CertifiedRadius(
        low, predicted, margin, lipschitz, lost,
        "proved" if proved and not executed else "estimated", module, inputs, mask,
    )  # fmt: skip


def _margins(certificate: Certificate) -> tuple[Numbers, Numbers, Any]:
    """Margins to every class, lengths of the differences of rows of the last layer, classes."""
    output = certificate.output
    if output.last is None or output.centre is None or output.centre.shape[1] != 1:
        raise TypeError(
            "a classifier must end in a linear layer that gives one row of logits for each input; "
            "for others take margin/(√2·certify(...).bound.upper)"
        )
    logits = output.centre[:, 0].cpu().numpy()
    if logits.shape[1] < 2:
        raise ValueError("a classifier has at least two classes")
    predicted = logits.argmax(axis=1)
    weight = output.last.weight.detach().double().cpu().numpy()
    ahead = np.take_along_axis(logits, predicted[:, None], axis=1) - logits
    pairs = enlarged(lengths(weight[predicted][:, None] - weight[None]), 2)
    return ahead, pairs, predicted


def _features(certificate: Certificate) -> Numbers:
    """Constant of the features that the last linear layer reads."""
    assert certificate.output.last is not None
    return certificate.output.last.features.lip


def _is_proved(certificate: Certificate) -> bool:
    return certificate.bound.rounding == "proved"


def _centre_error(here: Certificate, module: nn.Module, inputs: torch.Tensor) -> Numbers:
    """How far the logits as computed in float64 can be from exact ones."""
    if _is_proved(here):
        return here.output.drift
    first_order = times(here.execution_error, EPS / precision(module, At(inputs)))
    return np.maximum(here.output.drift, first_order)


def _allowed(
    certificate: Certificate, ahead: Numbers, pairs: Numbers, error: Numbers, executed: bool
) -> Numbers:
    """The radius that a constant allows: the smallest quotient of margin and constant.

    ``error`` is that of the logits at the inputs. An error of the logits changes the difference of
    two of them by √2 times as much.
    """
    constant = times(_features(certificate)[:, None], pairs)
    error = plus(error, certificate.execution_error) if executed else error
    spare = down(down(ahead) - times(root(2.0), error)[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        each = np.where(pairs == 0, np.where(spare > 0, np.inf, 0.0), down(spare / constant))
    each = np.where(np.isnan(each), 0.0, each)
    same = np.arange(ahead.shape[1])[None] == ahead.argmin(axis=1)[:, None]
    allowed = np.where(same, np.inf, each).min(axis=1)
    return np.where(np.isfinite(allowed), allowed, 0.0)
