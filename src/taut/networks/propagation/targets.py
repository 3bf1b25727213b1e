"""Targets: the linear functions of a network's output that are bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch


def margins(classes: Any, number: int) -> torch.Tensor:
    """Targets of a classifier: how far the logit of a class is ahead of each other one.

    Parameters
    ----------
    classes
        The class of each input.
    number
        How many classes there are.

    Examples
    --------
    >>> margins([1], 3)
    tensor([[[-1.,  1.,  0.],
             [ 0.,  1., -1.]]], dtype=torch.float64)
    """
    found = torch.as_tensor(np.asarray(classes)).long().reshape(-1)
    if bool(((found < 0) | (found >= number)).any()):
        raise ValueError(f"classes must be from 0 to {number - 1}, got {found.tolist()}")
    eye = torch.eye(number, dtype=torch.float64)
    rows = [eye[c] - torch.cat((eye[:c], eye[c + 1 :])) for c in found.tolist()]
    return torch.stack(rows)


def checked_targets(targets: torch.Tensor | None, outputs: torch.Tensor) -> torch.Tensor:
    """Rows on the output, (inputs, functions, tokens, width)."""
    batch, tokens, width = outputs.shape
    if targets is None:
        eye = torch.eye(tokens * width, dtype=outputs.dtype, device=outputs.device)
        return eye.reshape(1, -1, tokens, width).expand(batch, -1, -1, -1)
    if not isinstance(targets, torch.Tensor) or not targets.is_floating_point():
        raise TypeError("targets must be a tensor of real numbers, coefficients of the output")
    shapes = [(tokens, width)] if tokens > 1 else [(tokens, width), (width,)]
    for shape in shapes:
        if tuple(targets.shape[-len(shape) :]) == shape:
            front = tuple(targets.shape[: targets.ndim - len(shape)])
            if len(front) == 1 or (len(front) == 2 and front[0] == batch):
                found = targets.to(outputs).reshape(*front, tokens, width)
                return found.expand(batch, *found.shape[-3:])
    raise ValueError(
        f"targets must be (functions, *output) or (inputs, functions, *output) for {batch} inputs "
        f"and outputs of shape {shapes[-1]}, got {tuple(targets.shape)}"
    )
