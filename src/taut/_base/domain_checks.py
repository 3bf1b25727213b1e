"""Checks of the shapes, inputs and radii of domains."""

from __future__ import annotations

from typing import Any

import numpy as np

from taut._base.array import Array, is_torch, known, namespace, to_host
from taut._base.checks import whole_number

Shape = tuple[int, ...]


def checked_shape(shape: Any, axes: int = 1) -> Shape:
    """A shape of at least so many axes."""
    if isinstance(shape, int) or not axes <= len(shape) <= 3:
        vectors = "(n,), " if axes == 1 else ""
        raise ValueError(
            f"shape must be {vectors}(tokens, width) or (channels, height, width), got {shape!r}"
        )
    return tuple(whole_number(size, name="shape", least=1) for size in shape)


def check_inputs(inputs: Array) -> None:
    """Refuse what is not an array of finite real numbers."""
    try:
        xp = namespace(inputs)
        real = xp.isdtype(inputs.dtype, "real floating") or str(inputs.dtype).endswith("bfloat16")
    except (TypeError, AttributeError):
        raise TypeError(f"inputs must be an array, got {type(inputs).__name__}") from None
    if not real:
        raise TypeError(
            f"inputs must be real numbers, got {inputs.dtype}; token ids have no neighbours: pass "
            "the embeddings, model.get_input_embeddings()(ids)"
        )
    if 0 in inputs.shape:
        raise ValueError(f"inputs must not be empty, got shape {tuple(inputs.shape)}")
    if known(xp.any(~xp.isfinite(inputs))):
        raise ValueError("inputs contain NaN or infinity")


def check_radius(radius: Any, inputs: Array) -> None:
    """Refuse a radius that is not one number ≥ 0, or one for each input."""
    try:
        found = radii_of(radius)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"radius must be a number or numbers, got {radius!r}") from None
    if found.ndim > 1 or (found.ndim == 1 and len(found) != inputs.shape[0]):
        raise ValueError(
            f"radius must be one number or one for each of the {inputs.shape[0]} inputs, got "
            f"shape {found.shape}"
        )
    if not ((found >= 0) & np.isfinite(found)).all():
        raise ValueError(f"radius must be finite and >= 0, got {radius}")


def radii_of(radius: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A radius, or several, as float64."""
    return np.asarray(to_host(radius) if is_torch(radius) else radius, dtype=np.float64)
