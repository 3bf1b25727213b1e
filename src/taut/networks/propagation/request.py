"""Request: the set of inputs that a bound is asked for, checked."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from taut._base.checks import real_number, whole_number
from taut._base.domain import At, Domain, radii
from taut.networks.question import Question


class Request(NamedTuple):
    """A ball around each input.

    Attributes
    ----------
    radius
        One number for each input.
    norm
        Exponent: 1, 2 or infinity.
    scale
        Size of every entry, (inputs, tokens, width).
    where
        The same in words.
    """

    radius: list[float]
    norm: float
    scale: torch.Tensor
    where: Domain


def checked_norm(norm: float) -> float:
    """Refuse norms other than l1, l2 and l∞."""
    if norm not in (1, 2, math.inf):
        raise ValueError(f"norm must be 1, 2 or math.inf, got {norm!r}")
    return float(norm)


def checked_request(
    question: Question,
    norm: float,
    tokens: Sequence[int] | None,
    scale: torch.Tensor | None,
    device: torch.device,
) -> Request:
    """The set of inputs, or an error that says what is wrong with it."""
    domain = question.domain
    assert isinstance(domain, At)
    if question.context is not None and not isinstance(question.context, torch.Tensor):
        raise TypeError("a context is fixed when bounds are propagated: pass it as a tensor")
    x = domain.inputs
    batch = len(x)
    radius = np.broadcast_to(radii(domain), (batch,)).astype(float)
    if not (radius > 0).all():
        raise ValueError(
            "radius must be > 0 to propagate bounds: At(x, radius). At the input itself "
            "taut.networks.local_lipschitz gives the derivative"
        )
    sizes = torch.ones(x.shape, dtype=torch.float64, device=device)
    words = []
    if scale is not None:
        sizes = _scale(scale, x).to(device).clone()
        words.append("in units of a scale for each entry")
    if tokens is not None:
        chosen = _tokens(question, tokens, x)
        fixed = torch.ones(x.shape[1], dtype=torch.bool)
        fixed[chosen] = False
        sizes[:, fixed] = 0.0
        words.append(f"tokens {', '.join(map(str, chosen))} moving")
    flat = sizes.reshape(batch, *(x.shape[1:] if x.ndim == 3 else (1, -1)))
    return Request(radius.tolist(), checked_norm(norm), flat, domain.given(*words))


def _scale(scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    if not isinstance(scale, torch.Tensor) or tuple(scale.shape) not in (
        tuple(x.shape), tuple(x.shape[1:]),
    ):  # fmt: skip
        shape = tuple(scale.shape) if isinstance(scale, torch.Tensor) else type(scale).__name__
        raise ValueError(
            f"scale must be a tensor of the shape of one input, {tuple(x.shape[1:])}, or of all, "
            f"{tuple(x.shape)}; got {shape}"
        )
    found = scale.detach().double().expand(x.shape)
    if not bool(((found >= 0) & found.isfinite()).all()):
        raise ValueError("scale must be finite and >= 0 everywhere")
    return found


def _tokens(question: Question, tokens: Sequence[int], x: torch.Tensor) -> list[int]:
    if x.ndim != 3:
        raise ValueError("tokens can be chosen of inputs (batch, tokens, width) only; use scale")
    if isinstance(tokens, (str, bytes)) or not len(tokens):
        raise ValueError(f"tokens must be the positions of those that move, got {tokens!r}")
    many = x.shape[1]
    found = [whole_number(token, name="a token") for token in tokens]
    if any(not 0 <= token < many for token in found):
        raise ValueError(f"tokens must be from 0 to {many - 1}, got {found}")
    refuse_padding(question, found, x)
    return found


def refuse_padding(question: Question, tokens: Sequence[int], x: torch.Tensor) -> None:
    """Refuse to move tokens that nothing depends on, in any of the inputs (batch, tokens, width).

    A mask of as many inputs as tokens may also say which query sees which key, and passes.
    """
    mask = question.mask
    if mask is None or tuple(mask.shape) != tuple(x.shape[:2]) or x.shape[0] == x.shape[1]:
        return
    for token in tokens:
        padded = (~mask[:, token]).nonzero().flatten().tolist()
        if padded:
            where = "" if len(x) == 1 else f" of input {padded[0]}"
            raise ValueError(f"token {token}{where} is padding: nothing depends on it")


def deadline_of(time_limit: float | None) -> float:
    """``time.monotonic()`` at which to stop, after so many seconds."""
    if time_limit is None:
        return math.inf
    seconds = real_number(time_limit, name="time_limit")
    if not seconds >= 0:
        raise ValueError(f"time_limit must be a number of seconds >= 0, got {time_limit}")
    return time.monotonic() + seconds
