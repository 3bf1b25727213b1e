"""The prediction of a model as distributions over classes, and labels drawn from it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from taut.models import logits_of

ROWS = 64  # predictions whose labels are drawn at once: vocabularies are large


class Prediction(NamedTuple):
    """Logits (samples, predictions, classes), and which predictions are not of padding tokens."""

    logits: torch.Tensor
    real: torch.Tensor

    @property
    def tokens(self) -> np.ndarray[Any, Any]:
        """Number of predictions of each sample."""
        found: np.ndarray[Any, Any] = self.real.sum(dim=1).cpu().numpy()
        return found

    @property
    def rows(self) -> torch.Tensor:
        """Logits of all predictions that are not of padding, at least in float32."""
        found = self.logits.detach()[self.real.to(self.logits.device)]
        return found if found.dtype == torch.float64 else found.float()


def prediction(output: Any, inputs: Any, samples: int) -> Prediction:
    """What a model predicts on a batch; an error says why it predicts nothing."""
    try:
        logits = logits_of(output)
    except ValueError as error:
        raise ValueError(
            f"consequence is a change of the prediction, but {error}; leave it out, or load the "
            "model with its head"
        ) from None
    if len(logits) != samples:
        raise ValueError(
            f"consequence needs logits (samples, ..., classes): there are {samples} samples and "
            f"logits of shape {tuple(logits.shape)}"
        )
    if logits.shape[-1] < 2:
        raise ValueError(
            "consequence is a change of the predicted distribution, but this model has a single "
            "output, which is none"
        )
    real = torch.ones(logits.shape[:-1], dtype=torch.bool, device=logits.device)
    if isinstance(inputs, Mapping):
        for name in ("decoder_attention_mask", "attention_mask"):
            mask = inputs.get(name)
            if isinstance(mask, torch.Tensor) and mask.shape == real.shape:
                real = mask.to(real.device) > 0
                break
    return Prediction(logits.reshape(samples, -1, logits.shape[-1]), real.reshape(samples, -1))


def drawn_score(found: Prediction, seed: int, numbers: Any, draw: int) -> torch.Tensor:
    """Derivative in the logits of the log-likelihood of labels drawn from the prediction itself.

    Labels depend on the seed, the number of the sample, the draw and the prediction alone, so that
    any division of the samples into batches and processes draws the same ones.
    """
    chances = found.logits.detach().float().softmax(dim=-1)
    score = -chances
    for index, number in enumerate(numbers):
        places = chances.shape[1]
        uniform = torch.from_numpy(
            np.random.default_rng((seed, int(number), draw)).random(places)
        ).to(chances.device, _double(chances.device))
        for first in range(0, places, ROWS):
            block = slice(first, first + ROWS)
            ends = chances[index, block].to(uniform.dtype).cumsum(dim=-1)
            at = torch.searchsorted(ends, (uniform[block] * ends[:, -1])[:, None], right=True)
            labels = at.clamp(max=chances.shape[-1] - 1)
            score[index, block] = score[index, block].scatter_add(
                -1, labels, torch.ones_like(labels, dtype=score.dtype)
            )
    return (score * found.real[..., None]).to(found.logits.dtype)


def divergence(before: torch.Tensor, after: torch.Tensor) -> float:
    """Sum of KL(before ‖ after) over predictions, in nats, from logits (predictions, classes).

    With d the differences of the logits minus their mean, KL = log Σ πᵢ exp(dᵢ), which loses no
    digits where d is small; differences of log-probabilities would.
    """
    chances = before.softmax(dim=-1)
    d = (after - before).masked_fill(chances == 0, 0.0)
    d = d - (chances * d).sum(dim=-1, keepdim=True)
    left = (chances * d).sum(dim=-1)  # what rounding left of the mean
    return float((torch.log1p((chances * d.expm1()).sum(dim=-1)) - left).double().sum())


def _double(device: torch.device) -> torch.dtype:
    """The widest type of a device: MPS has no float64."""
    return torch.float32 if device.type == "mps" else torch.float64
