"""How each operation of an ONNX file is executed with torch, in the precision of its weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from taut.networks.onnx_files.movement import MOVES, split
from taut.networks.onnx_files.step import Step, UnknownOperationError
from taut.networks.onnx_files.windows import windows

Values = list[Any]  # tensors, or None for inputs that are left out


def activation_module(step: Step) -> nn.Module:
    """The module of torch that is the same function."""
    make, defaults = ACTIVATIONS[step.kind]
    if step.kind == "Gelu":
        return nn.GELU(approximate=step.get("approximate", "none"))
    return make(*(step.get(name, default) for name, default in defaults))


ACTIVATIONS: dict[str, tuple[Callable[..., nn.Module], tuple[tuple[str, float], ...]]] = {
    "Celu": (nn.CELU, (("alpha", 1.0),)),
    "Elu": (nn.ELU, (("alpha", 1.0),)),
    "Gelu": (nn.GELU, ()),
    "HardSwish": (nn.Hardswish, ()),
    "LeakyRelu": (nn.LeakyReLU, (("alpha", 0.01),)),
    "Mish": (nn.Mish, ()),
    "Relu": (nn.ReLU, ()),
    "Softplus": (nn.Softplus, ()),
    "Softsign": (nn.Softsign, ()),
}


def reduced_axes(step: Step, given: Values) -> list[int]:
    """The axes that a mean or sum goes over."""
    axes = step.get("axes")
    if axes is None and len(given) > 1 and given[1] is not None:
        axes = given[1].tolist()
    rank = given[0].ndim if isinstance(given[0], torch.Tensor) else len(given[0].shape)
    return sorted(int(axis) % rank for axis in (range(rank) if axes is None else axes))


def _reduce(step: Step, given: Values) -> torch.Tensor:
    axes, keep = reduced_axes(step, given), bool(step.get("keepdims", 1))
    function = torch.mean if step.kind == "ReduceMean" else torch.sum
    found: torch.Tensor = function(given[0], dim=axes, keepdim=keep)
    return found


def _convolution(step: Step, given: Values) -> torch.Tensor:
    x, weight, bias = [*given, None][:3]
    lie = windows(step, list(weight.shape[2:]))
    convolve = functional.conv1d if len(lie.size) == 1 else functional.conv2d
    padded = functional.pad(x, lie.around)
    return convolve(padded, weight, bias, lie.stride, 0, lie.dilation, step.get("group", 1))


def _average(step: Step, given: Values) -> torch.Tensor:
    lie = windows(step, list(step.get("kernel_shape")))
    if any(lie.pads) and not step.get("count_include_pad", 0):
        raise UnknownOperationError(step, "padding that does not count is not supported")
    pool = functional.avg_pool1d if len(lie.size) == 1 else functional.avg_pool2d
    if any(size != 1 for size in lie.dilation):
        raise UnknownOperationError(step, "dilations are not supported")
    return pool(functional.pad(given[0], lie.around), lie.size, lie.stride)


def _largest(step: Step, given: Values) -> torch.Tensor:
    lie = windows(step, list(step.get("kernel_shape")))
    if len(step.outputs) > 1:
        raise UnknownOperationError(step, "the places of its largest entries are not supported")
    pool = functional.max_pool1d if len(lie.size) == 1 else functional.max_pool2d
    padded = functional.pad(given[0], lie.around, value=-torch.inf)
    return pool(padded, lie.size, lie.stride, 0, lie.dilation)


def _softmax(step: Step, given: Values) -> torch.Tensor:
    return torch.softmax(given[0], dim=softmax_axis(step, given[0].ndim))


def softmax_axis(step: Step, rank: int) -> int:
    """The last axis, which every version of ONNX means the same by."""
    axis = int(step.get("axis", -1 if step.opset >= 13 else 1)) % rank
    if axis != rank - 1:
        raise UnknownOperationError(step, f"axis {axis} of {rank} is not the last")
    return axis


def _batch_norm(step: Step, given: Values) -> torch.Tensor:
    x, gain, shift, mean, variance = given[:5]
    if step.get("training_mode", 0):
        raise UnknownOperationError(step, "it is in training mode: export the model in eval mode")
    shape = [-1, *[1] * (x.ndim - 2)]
    gain, shift, mean, variance = (v.reshape(shape) for v in (gain, shift, mean, variance))
    found: torch.Tensor = (x - mean) / (variance + step.get("epsilon", 1e-5)).sqrt() * gain + shift
    return found


def _layer_norm(step: Step, given: Values) -> torch.Tensor:
    x, gain, shift = [*given, None][:3]
    if int(step.get("axis", -1)) % x.ndim != x.ndim - 1:
        raise UnknownOperationError(step, "it normalises more than the last axis")
    return functional.layer_norm(x, x.shape[-1:], gain, shift, step.get("epsilon", 1e-5))


def _where(step: Step, given: Values) -> torch.Tensor:
    return torch.where(given[0], given[1], given[2])


def _plain(function: Callable[..., torch.Tensor]) -> Callable[[Step, Values], torch.Tensor]:
    return lambda step, given: function(*given)


COMPUTED: dict[str, Callable[[Step, Values], torch.Tensor]] = {
    "Add": _plain(torch.add),
    "AveragePool": _average,
    "BatchNormalization": _batch_norm,
    "Concat": lambda step, given: torch.cat(given, dim=step.get("axis")),
    "Conv": _convolution,
    "Div": _plain(torch.div),
    "Erf": _plain(torch.erf),
    "GlobalAveragePool": lambda step, given: given[0].mean(
        dim=tuple(range(2, given[0].ndim)), keepdim=True
    ),
    "GlobalMaxPool": lambda step, given: given[0].amax(
        dim=tuple(range(2, given[0].ndim)), keepdim=True
    ),
    "LayerNormalization": _layer_norm,
    "MatMul": _plain(torch.matmul),
    "MaxPool": _largest,
    "Mul": _plain(torch.mul),
    "Neg": _plain(torch.neg),
    "Pow": _plain(torch.pow),
    "Reciprocal": _plain(torch.reciprocal),
    "ReduceMean": _reduce,
    "ReduceSum": _reduce,
    "Sigmoid": _plain(torch.sigmoid),
    "Softmax": _softmax,
    "Sqrt": _plain(torch.sqrt),
    "Sub": _plain(torch.sub),
    "Tanh": _plain(torch.tanh),
    "Where": _where,
}
KNOWN = sorted({*MOVES, *COMPUTED, *ACTIVATIONS, "Cast", "Gemm", "Split"})


def executed(step: Step, given: Values) -> tuple[torch.Tensor, ...]:
    """What an operation makes of tensors."""
    if step.kind == "Split":
        return split(step, given)
    if step.kind in ACTIVATIONS:
        return (activation_module(step)(given[0]),)
    function: Callable[[Step, Any], torch.Tensor] | None = MOVES.get(step.kind)
    function = function or COMPUTED.get(step.kind)
    if function is None:
        raise UnknownOperationError(step, f"known are {', '.join(KNOWN)}")
    return (function(step, given),)
