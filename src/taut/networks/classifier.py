"""How far an input of a classifier may move before its class can change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import nn

from taut._base.checks import whole_number
from taut._base.domain import At
from taut._base.rounding import Numbers
from taut.networks.attack import AttackedBall, radius_of_change, smallest_margin
from taut.networks.execution import precision
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.margin_search import MarginSearch
from taut.networks.propagation.propagate import rounding_of
from taut.networks.propagation.record import record
from taut.networks.propagation.request import checked_request, deadline_of
from taut.networks.propagation.targets import margins
from taut.networks.question import Question, ask
from taut.networks.rule_check import compare_outputs

GUESS = 1.0  # where nothing is known of how far a class reaches


@dataclass(frozen=True)
class CertifiedRadius:
    """What :func:`certified_radius` found, one number for each input.

    Attributes
    ----------
    radius
        No input nearer than this in the norm, over all of its tokens or pixels (as the model gets
        them), is of another class; 0 where nothing could be shown, and for ties.
    predicted, margin
        The class, and how far its logit is ahead of the next.
    first_order
        The radius that the derivative of the margins suggests: an estimate and no bound.
    norm
        Exponent of the norm: 1, 2 or infinity.
    rounding
        ``"proved"`` if the radius holds with all rounding proved; ``"estimated"`` if it rests on
        an error to first order (modules without affine bounds, half precision, as executed).
    finished
        False for inputs whose search was cut short by the time limit; their radius holds.
    """

    radius: Numbers
    predicted: Numbers
    margin: Numbers
    first_order: Numbers
    norm: float
    rounding: Literal["proved", "estimated"]
    finished: Numbers
    _question: Question = field(repr=False)
    _scale: torch.Tensor = field(repr=False)

    def attack(self, *, steps: int = 40, restarts: int = 2, seed: int = 0) -> Numbers:
        """Smallest margin that projected gradient steps find inside the radius.

        It must stay positive where the radius is; a search can refute a radius, not prove it.
        """
        return smallest_margin(self._ball(seed), self.radius, steps, restarts)

    def attack_radius(self, *, steps: int = 40, restarts: int = 1, seed: int = 0) -> Numbers:
        """Smallest radius at which projected gradient steps change the class.

        The largest radius that can be certified lies between :attr:`radius` and this.
        """
        begin = np.maximum(self.radius, np.where(self.first_order >= 0, self.first_order, GUESS))
        return radius_of_change(self._ball(seed), self.radius, begin, steps, restarts)

    def _ball(self, seed: int) -> AttackedBall:
        return AttackedBall(self._question, self.predicted, self.norm, self._scale, seed)


@torch.no_grad()
@without_autocast()
def certified_radius(
    module: nn.Module,
    inputs: torch.Tensor,
    *,
    norm: float = 2,
    tokens: Sequence[int] | None = None,
    scale: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    executed: bool = True,
    steps: int = 14,
    tolerance: float = 1e-3,
    optimise: int = 4,
    time_limit: float | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> CertifiedRadius:
    """Radius around each input within which a classifier's answer provably does not change.

    The margins of the predicted class are bounded by :func:`propagate` within radii that are
    searched for.

    Parameters
    ----------
    module
        A classifier, one row of logits for each input.
    inputs, mask
        As in :func:`certify`.
    norm, tokens, scale
        As in :func:`propagate`.
    executed
        Whether the radius is for the network as executed, whose rounding is then taken off the
        margin, or for exact arithmetic. In float32 a deep network may leave nothing.
    steps, tolerance
        How many radii are tried for each input, at most, and how far the largest one may be from
        failing, relative to itself.
    optimise
        How often the slopes below ReLUs are moved to raise a margin; 0 leaves them.
    time_limit
        Seconds for all inputs; what was certified until then is returned.
    progress
        Called with the number of inputs that are done, and of all.

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
    >>> bool((found.radius <= found.attack_radius()).all())
    True
    """
    steps = whole_number(steps, name="steps", least=1)
    optimise = whole_number(optimise, name="optimise", least=0)
    if not 0 < tolerance < 1:
        raise ValueError(f"tolerance must be between 0 and 1, got {tolerance}")
    question, device = ask(module, At(inputs, 1.0), None, mask, None, "l2", 0)
    request = checked_request(question, norm, tokens, scale, device)
    eps = precision(module, question.domain) if executed else 0.0
    logits, rounding = _logits(question, device, eps)
    predicted = logits.argmax(dim=1).cpu().numpy()
    ahead = (margins(predicted, logits.shape[1]).to(logits) * logits[:, None]).sum(dim=-1)
    first_order = np.ones(len(inputs))
    deadline = deadline_of(time_limit)
    radius, finished = np.zeros(len(inputs)), np.ones(len(inputs), dtype=bool)
    for sample in range(len(inputs)):
        label = int(predicted[sample])
        search = MarginSearch(question, request, sample, label, eps, deadline, optimise)
        first_order[sample] = search.first_order(ahead[sample])
        estimate = first_order[sample]
        guess = min(estimate / 2, 1e12) if estimate > 0 else GUESS
        lead = float(ahead[sample].min())
        radius[sample] = search.largest(lead, guess, steps, tolerance)
        finished[sample] = not search.late
        if progress is not None:
            progress(sample + 1, len(inputs))
    return CertifiedRadius(
        radius, predicted, ahead.min(dim=1).values.cpu().numpy(), first_order, request.norm,
        rounding, finished, question, request.scale,
    )  # fmt: skip


def _logits(
    question: Question, device: torch.device, eps: float
) -> tuple[torch.Tensor, Literal["proved", "estimated"]]:
    """Logits in float64, and how the rounding of bounds is justified."""
    assert isinstance(question.domain, At)
    tapes = [record(question, sample, device) for sample in range(len(question.domain.inputs))]
    outputs = torch.stack([tape[-1].centre for tape in tapes])
    compare_outputs(question, question.points(1), outputs)
    if outputs.shape[1] != 1:
        raise TypeError(
            f"a classifier must give one row of logits for each input, this one gives "
            f"{outputs.shape[1]}"
        )
    if outputs.shape[2] < 2:
        raise ValueError("a classifier has at least two classes")
    return outputs[:, 0], rounding_of(tapes, eps)
