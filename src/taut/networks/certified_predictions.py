"""certified_predictions: margins over constants are radii, for a forward pass alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn

from taut._base.domain import At, Ball
from taut._base.rounding import EPS, Numbers, down, enlarged, number, plus, times
from taut.networks.attack import AttackedBall, radius_of_change, smallest_margin
from taut.networks.certify import certify
from taut.networks.classifier import CertifiedRadius
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.question import Question, ask

AT_ONCE = 256  # inputs of a forward pass
ROOT_2 = enlarged(2**0.5, 1)


@runtime_checkable
class MarginBounded(Protocol):
    """A classifier that knows how far differences of its logits move, better than all of them."""

    def margin_constants(self, domain: Ball, norm: Literal["l2", "token"]) -> Numbers:
        """Constants of logit a less logit b on a domain, (classes, classes)."""
        ...


@dataclass(frozen=True)
class CertifiedPredictions:
    """What :func:`certified_predictions` found; arrays have the shape (inputs, …) of predictions.

    Attributes
    ----------
    radius
        No input nearer than this has another class there; 0 where nothing could be shown.
    predicted, margin
        The class, and how far its logit is ahead of the next.
    correct
        Whether it is the label; None without labels.
    norm
        ``"l2"`` over all of the input, or ``"token"``.
    bound
        Lipschitz constant of the logits on the domain.
    execution_error
        How far rounding may have moved the logits, to first order, at every input of the domain.
        Twice of it is taken off the margins, so the radius is for the network as executed.
    domain
        All inputs that are twice as long as the longest one, which radii do not lead out of.
    """

    radius: Numbers
    predicted: np.ndarray[Any, np.dtype[Any]]
    margin: Numbers
    correct: np.ndarray[Any, np.dtype[np.bool_]] | None
    norm: Literal["l2", "token"]
    bound: float
    execution_error: float
    domain: Ball
    _question: Question = field(repr=False)

    def certified_accuracy(self, radii: Any) -> Numbers:
        """Share of predictions that are right and stay so within each radius.

        Without labels, the share of those that stay as they are. At radius 0 ties count as well.
        """
        held = np.ones_like(self.radius, dtype=bool) if self.correct is None else self.correct
        return number([float((held & (self.radius >= r)).mean()) for r in np.atleast_1d(radii)])

    def mean_radius(self, *, correct_only: bool = False) -> float:
        """Mean of the radii. Wrong predictions count as 0, with ``correct_only`` not at all."""
        if self.correct is None:
            return float(self.radius.mean())
        right = self.radius[self.correct]
        return float(right.sum() / max(right.size if correct_only else self.radius.size, 1))

    def attack(self, *, steps: int = 40, restarts: int = 2, seed: int = 0) -> Numbers:
        """Smallest margin that projected gradient steps find inside each radius.

        It must stay positive where the radius is; a search can refute a radius, not prove it.
        """
        return smallest_margin(self._ball(seed), self.radius, steps, restarts)

    def attack_radius(self, *, steps: int = 40, restarts: int = 1, seed: int = 0) -> Numbers:
        """Smallest radius at which projected gradient steps change the class."""
        begin = np.maximum(2 * self.radius, 1e-3)
        return radius_of_change(self._ball(seed), self.radius, begin, steps, restarts)

    def as_radius(self) -> CertifiedRadius:
        """The same as :func:`certified_radius` gives it, without what the derivative suggests."""
        unknown, done = np.full(len(self.radius), np.nan), np.ones(len(self.radius), dtype=bool)
        ball = self._ball(0)
        return CertifiedRadius(
            self.radius, self.predicted, self.margin, unknown, 2.0, "estimated", done,
            self._question, ball.scale,
        )  # fmt: skip

    def _ball(self, seed: int) -> AttackedBall:
        if self.norm != "l2" or self.radius.ndim != 1:
            raise ValueError("attacks are for one prediction an input and radii in l2")
        assert isinstance(self._question.domain, At)
        scale = torch.ones_like(self._question.domain.inputs)
        return AttackedBall(self._question, self.predicted, 2, scale, seed)


@torch.no_grad()
@without_autocast()
def certified_predictions(
    module: nn.Module,
    inputs: torch.Tensor,
    labels: torch.Tensor | None = None,
    *,
    norm: Literal["l2", "token"] = "l2",
) -> CertifiedPredictions:
    """Predictions with the radius within which each provably stays: one forward pass for all.

    The radius is the margin over the constant of the difference of two logits (theorem
    margin-radius). One bound of the network serves all inputs, so that their number costs nothing
    but forward passes. Radii are worth having where the bound was kept small in training, as in
    :class:`taut.control.LipschitzTransformer`; for other networks :func:`certified_radius` looks
    at every input by itself.

    Parameters
    ----------
    module
        A classifier of rows, (inputs, classes), or of tokens, (inputs, tokens, classes).
    inputs
        As in :func:`certify`: embeddings of text, or images.
    labels
        The right classes, one for each prediction.
    norm
        In which the input moves: ``"l2"``, or ``"token"``, the largest l2 norm of a token.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> found = certified_predictions(net, torch.randn(5, 4))
    >>> bool((found.radius > 0).all() and (found.attack() > 0).all())
    True
    """
    if norm not in ("l2", "token"):
        raise ValueError(f"norm must be l2 or token, got {norm!r}")
    question, _ = ask(module, At(inputs), None, None, None, norm, 0)
    (points,) = question.points(1)
    logits = (
        torch.cat([question.call(part) for part in torch.split(points, AT_ONCE)]).double().cpu()
    )
    if logits.shape[-1] < 2:
        raise ValueError("a classifier has at least two classes")
    longest = float(_lengths(points).max())
    shape = tuple(points.shape[1:])
    domain = Ball(times(2.0, longest), shape if len(shape) > 1 else (1, *shape))
    certificate = certify(module, domain, norm=norm, measure=False)
    bound, lost = float(certificate.bound.upper[0]), float(certificate.execution_error[0])
    constants = np.full((logits.shape[-1],) * 2, times(ROOT_2, bound))
    if isinstance(module, MarginBounded):
        constants = np.minimum(constants, module.margin_constants(domain, norm))
    found = logits.numpy()
    predicted = found.argmax(axis=-1)
    ahead = np.take_along_axis(found, predicted[..., None], -1) - found
    np.put_along_axis(ahead, predicted[..., None], np.inf, -1)
    # Both inputs are rounded, and each of two logits at most by what all of them are together.
    left = down(down(ahead) - times(2.0, ROOT_2, lost))
    with np.errstate(all="ignore"):
        radius = down(left / constants[predicted]).min(axis=-1)
    return CertifiedPredictions(
        np.minimum(radius, longest), predicted, ahead.min(axis=-1), _right(predicted, labels),
        norm, bound, lost, domain, question,
    )  # fmt: skip


def _lengths(points: torch.Tensor) -> Numbers:
    """Lengths of tokens, or of whole images and rows, from above."""
    rows = points.double().cpu()
    rows = rows if points.ndim == 3 else rows.flatten(1)
    size = torch.linalg.vector_norm(rows, dim=-1).numpy()
    return np.asarray(plus(enlarged(size, rows.shape[-1] + 8), EPS))


def _right(
    predicted: np.ndarray[Any, np.dtype[Any]], labels: torch.Tensor | None
) -> np.ndarray[Any, np.dtype[np.bool_]] | None:
    if labels is None:
        return None
    given = np.asarray(torch.as_tensor(labels).cpu())
    if given.shape != predicted.shape:
        raise ValueError(
            f"labels must have the shape of the predictions {predicted.shape}, got {given.shape}"
        )
    return np.asarray(predicted == given)
