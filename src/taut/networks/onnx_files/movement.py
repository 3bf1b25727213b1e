"""Operations of ONNX that move entries and compute nothing.

They are the same functions for the values of a tensor and for the places that its entries come
from, so that one table serves the execution and the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from taut.networks.onnx_files.step import Step, UnknownOperationError

Given = Sequence[torch.Tensor | None]  # the inputs; only the first depends on the network's


def _list(value: torch.Tensor | Sequence[int] | None) -> list[int] | None:
    if value is None:
        return None
    return [int(each) for each in (value.tolist() if isinstance(value, torch.Tensor) else value)]


def _second(step: Step, given: Given, name: str) -> list[int] | None:
    """Numbers that are an attribute in old files and the second input in new ones."""
    if name in step.attributes:
        return _list(step.get(name))
    return _list(given[1]) if len(given) > 1 else None


def _same(step: Step, given: Given) -> torch.Tensor:
    found = given[0]
    assert found is not None
    return found


def _reshape(step: Step, given: Given) -> torch.Tensor:
    x, shape = _same(step, given), _second(step, given, "shape")
    if shape is None:
        raise UnknownOperationError(step, "it has no shape")
    if not step.get("allowzero", 0):
        shape = [x.shape[axis] if size == 0 else size for axis, size in enumerate(shape)]
    return x.reshape(shape)


def _flatten(step: Step, given: Given) -> torch.Tensor:
    x = _same(step, given)
    axis = step.get("axis", 1) % (x.ndim + 1)
    return x.reshape(x.shape[:axis].numel(), -1)


def _transpose(step: Step, given: Given) -> torch.Tensor:
    x = _same(step, given)
    return x.permute(step.get("perm") or list(range(x.ndim))[::-1])


def _squeeze(step: Step, given: Given) -> torch.Tensor:
    x, axes = _same(step, given), _second(step, given, "axes")
    gone = range(x.ndim) if axes is None else [axis % x.ndim for axis in axes]
    kept = [n for axis, n in enumerate(x.shape) if axis not in gone or (axes is None and n != 1)]
    return x.reshape(kept)


def _unsqueeze(step: Step, given: Given) -> torch.Tensor:
    x, axes = _same(step, given), _second(step, given, "axes") or []
    rank = x.ndim + len(axes)
    shape, rest = [1] * rank, iter(x.shape)
    new = {axis % rank for axis in axes}
    for axis in range(rank):
        if axis not in new:
            shape[axis] = next(rest)
    return x.reshape(shape)


def _slice(step: Step, given: Given) -> torch.Tensor:
    x = _same(step, given)
    if "starts" in step.attributes:
        starts, ends, axes = (_list(step.get(name)) for name in ("starts", "ends", "axes"))
        steps = None
    else:
        rest = [*given[1:], None, None][:4]
        starts, ends, axes, steps = (_list(each) for each in rest)
    if starts is None or ends is None:
        raise UnknownOperationError(step, "where it starts or ends is not fixed")
    for index, start in enumerate(starts):
        axis = index if axes is None else axes[index]
        every = 1 if steps is None else steps[index]
        chosen = range(x.shape[axis])[start : ends[index] : every]
        x = x.index_select(axis, torch.tensor(list(chosen), dtype=torch.long, device=x.device))
    return x


def _gather(step: Step, given: Given) -> torch.Tensor:
    x, index = _same(step, given), given[1]
    assert index is not None
    axis = step.get("axis", 0) % x.ndim
    flat = (index.long() % x.shape[axis]).reshape(-1).to(x.device)
    found = x.index_select(axis, flat)
    return found.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1 :])


def _expand(step: Step, given: Given) -> torch.Tensor:
    x, shape = _same(step, given), _second(step, given, "shape") or []
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(shape)))


MOVES: dict[str, Callable[[Step, Given], torch.Tensor]] = {
    "Dropout": _same,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _same,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}


def split(step: Step, given: Given) -> tuple[torch.Tensor, ...]:
    """The parts that Split makes of a tensor."""
    x, sizes = _same(step, given), _second(step, given, "split")
    axis = step.get("axis", 0)
    if sizes is None:
        many = len(step.outputs)
        size = -(-x.shape[axis] // many)  # the last part may be smaller
        return torch.split(x, size, dim=axis)
    return torch.split(x, sizes, dim=axis)
