"""On which inputs a certificate holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from taut._checks import real_number, whole_number

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Ball:
    """All inputs whose tokens are of l2 norm at most ``radius``.

    ``shape`` is that of one input: (tokens, width), or (channels, height, width) for images, which
    count as one token.

    >>> Ball(2.0, shape=(16, 64))
    Ball(radius=2.0, shape=(16, 64))
    """

    radius: float
    shape: Shape

    def __post_init__(self) -> None:
        radius = real_number(self.radius, name="radius")
        if not 0 < radius < math.inf:
            raise ValueError(f"radius must be a finite number > 0, got {self.radius}")
        object.__setattr__(self, "radius", radius)
        object.__setattr__(self, "shape", _shape(self.shape))

    def __str__(self) -> str:
        return f"all inputs of shape {self.shape} with tokens of length at most {self.radius:g}"


@dataclass(frozen=True)
class Everywhere:
    """All inputs of a shape. Attention has a bound here only if a norm layer stands before it.

    >>> Everywhere(shape=(16, 64))
    Everywhere(shape=(16, 64))
    """

    shape: Shape

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _shape(self.shape))

    def __str__(self) -> str:
        return f"all inputs of shape {self.shape}"


def _shape(shape: Any) -> Shape:
    if isinstance(shape, int) or not 2 <= len(shape) <= 3:
        raise ValueError(
            f"shape must be (tokens, width) or (channels, height, width), got {shape!r}"
        )
    return tuple(whole_number(size, name="shape", least=1) for size in shape)


@dataclass(frozen=True)
class At:
    """Given inputs, or with a ``radius`` all inputs that near to one of them.

    Parameters
    ----------
    inputs
        (batch, tokens, width), whatever the module's ``batch_first`` says; (batch, width) is one
        token each, (batch, channels, height, width) images. For models of text these are the word
        embeddings, ``inputs_embeds``.
    radius
        How far an input may be from the given one in the norm of the certificate: one number, or
        one for each sample. 0 bounds the derivative at the inputs themselves.
    """

    inputs: torch.Tensor
    radius: Any = 0.0

    def __post_init__(self) -> None:
        if not isinstance(self.inputs, torch.Tensor):
            raise TypeError(f"inputs must be a tensor, got {type(self.inputs).__name__}")
        if not self.inputs.is_floating_point():
            raise TypeError(
                f"inputs must be real numbers, got {self.inputs.dtype}; token ids have no "
                "neighbours: pass the embeddings, model.get_input_embeddings()(ids)"
            )
        if self.inputs.ndim < 2 or 0 in self.inputs.shape:
            raise ValueError(
                "inputs must be (batch, tokens, width), (batch, width) or images, none of them "
                f"empty; got {tuple(self.inputs.shape)}"
            )
        if not bool(torch.isfinite(self.inputs).all()):
            raise ValueError("inputs contain NaN or infinity")
        try:
            radius = torch.as_tensor(self.radius, dtype=torch.float64).detach().cpu()
        except (TypeError, ValueError, RuntimeError):
            raise TypeError(f"radius must be a number or numbers, got {self.radius!r}") from None
        if radius.ndim > 1 or (radius.ndim == 1 and len(radius) != len(self.inputs)):
            raise ValueError(
                f"radius must be one number or one for each of the {len(self.inputs)} inputs, got "
                f"shape {tuple(radius.shape)}"
            )
        if not bool(((radius >= 0) & torch.isfinite(radius)).all()):
            raise ValueError(f"radius must be finite and >= 0, got {self.radius}")

    def __str__(self) -> str:
        radius = torch.as_tensor(self.radius)
        if not bool(radius.any()):
            return "at these inputs"
        near = f"{radius.item():g}" if radius.numel() == 1 else "its radius"
        return f"within {near} of these inputs"


Domain = Ball | Everywhere | At
