"""The inverse of the softmax: logits of given probabilities."""

from __future__ import annotations

import math
from typing import Literal

from taut._base.array import Array, Namespace, known, quietly
from taut._base.checks import (
    real_number,
    restore_axis,
    rows,
    scale_value,
    whole_number,
)
from taut._softmax.exponents import wide_if_extreme

__all__ = ["logits"]


@quietly
def logits(
    s: Array,
    *,
    axis: int = -1,
    scale: float = 1.0,
    fix: Literal["mean", "logsumexp"] | int = "mean",
    value: float = 0.0,
) -> Array:
    """Inverse of the softmax (theorem inverse): the logits of given probabilities.

    They are known only up to a constant. ``fix`` says which quantity is set to ``value``: the mean
    of the logits that are not -inf, their log-sum-exp, or the logit with that index.

    >>> logits([0.25, 0.75], fix=0)
    array([0.        , 1.09861229])
    """
    scale = scale_value(
        scale,
        infinite="the probabilities do not determine the logits",
        zero="the probabilities do not determine the logits",
    )
    value = real_number(value, name="value")
    if not math.isfinite(value):
        raise ValueError(f"value must be finite, got {value}")
    xp, s = rows(s, axis=axis, name="s")
    _check_probabilities(xp, s)
    dtype, s = s.dtype, wide_if_extreme(s, scale)
    positive = s > 0
    logs = xp.log(xp.where(positive, s, xp.ones_like(s)))
    if fix == "mean":
        counts = xp.sum(xp.astype(positive, s.dtype), axis=-1, keepdims=True)
        anchor = xp.sum(logs, axis=-1, keepdims=True) / counts
    elif fix == "logsumexp":
        anchor = xp.zeros_like(logs[..., :1])
    elif not isinstance(fix, str):
        fix = whole_number(fix, name="fix")
        if not -s.shape[-1] <= fix < s.shape[-1]:
            raise ValueError(f"fix={fix} is not an index of {s.shape[-1]} probabilities")
        index = fix % s.shape[-1]
        anchor = logs[..., index : index + 1]
        if known(xp.any(~positive[..., index])):
            raise ValueError(f"the probability at index {fix} is 0, so its logit cannot be {value}")
    else:
        raise ValueError(f"fix must be 'mean', 'logsumexp' or an index, got {fix!r}")
    found = xp.astype((logs - anchor) / scale + value, dtype, copy=False)
    if known(xp.any(~xp.isfinite(found))):
        raise ValueError(f"the logits overflow at scale {scale} and value {value}")
    result = xp.where(positive, found, xp.full_like(found, -math.inf))
    return restore_axis(result, axis)


def _check_probabilities(xp: Namespace, s: Array) -> None:
    total = xp.sum(s, axis=-1)
    if known(xp.any(~(s >= 0))):
        raise ValueError("s must hold probabilities: it has a negative entry or NaN")
    off = xp.abs(total - 1)
    if known(xp.any(off > 1e-3)):
        worst = float(xp.max(off))
        raise ValueError(f"s must sum to 1 along the axis; a sum is off by {worst:.3g}")
