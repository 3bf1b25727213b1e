"""Operations of ONNX that are linear maps: weights, convolutions, means, norm layers."""

from __future__ import annotations

from typing import Any

import torch

from taut.networks.onnx_files.attention_steps import attended, scores
from taut.networks.onnx_files.execution import reduced_axes
from taut.networks.onnx_files.polynomial import Polynomial
from taut.networks.onnx_files.step import Step
from taut.networks.onnx_files.symbols import NormPart, PlacedEntries, ScoreProduct, TokenSource
from taut.networks.onnx_files.walk import Walk, in_tokens, reads
from taut.networks.onnx_files.windows import pooled_places, window_places, windows
from taut.networks.operations.normalisation import FixedNorm


def mapped(
    walk: Walk, node: Any, weight: torch.Tensor, bias: torch.Tensor | None, name: str
) -> TokenSource:
    """A linear map of tokens that is applied when it is needed."""
    walk.run.fits(node, weight.shape[1], "a linear map")
    return TokenSource(node, (weight, bias), name)


@reads("MatMul")
def _product(walk: Walk, step: Step, given: list[Any]) -> Any:
    left, right = given
    if isinstance(left, torch.Tensor):  # from the left: the same map of the transposed value
        x = walk.entries(right)
        if left.ndim != 2 or len(x.shape) < 2:
            raise walk.unknown("a weight on the left must be a matrix")
        flipped = _times(walk, step, x.moved(x.places.mT), left.mT)
        return flipped.moved(flipped.places.mT)
    if isinstance(right, torch.Tensor):
        return _times(walk, step, walk.entries(left), right)
    if isinstance(left, ScoreProduct) and left.weights:
        return attended(walk, step, left, walk.entries(right))
    return scores(walk, walk.entries(left), walk.entries(right))


def _times(walk: Walk, step: Step, x: PlacedEntries, weight: torch.Tensor) -> PlacedEntries:
    if weight.ndim > 2:
        raise walk.unknown("a weight must be a matrix")
    node = walk.matrix(x)
    tokens = mapped(walk, node, weight.reshape(len(weight), -1).mT, None, step.name)
    shape = (*x.shape[:-1], *weight.shape[1:])
    return PlacedEntries(tokens, torch.arange(tokens.count).reshape(shape))


@reads("Conv")
def _convolution(walk: Walk, step: Step, given: list[Any]) -> PlacedEntries:
    x, weight, bias = walk.entries(given[0]), given[1], [*given, None][2]
    if not isinstance(weight, torch.Tensor) or not isinstance(bias, torch.Tensor | None):
        raise walk.unknown("its weight or bias depends on the input")
    lie = windows(step, list(weight.shape[2:]))
    rows, lattice = window_places(x.places, lie)
    flat, groups = weight.flatten(1), step.get("group", 1)
    if groups > 1:  # each group of outputs reads its own channels; the others have zeros
        blocks = weight.reshape(groups, -1, *weight.shape[1:]).flatten(2)
        flat = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
    tokens = mapped(walk, walk.laid(x, rows), flat, bias, step.name)
    places = torch.arange(tokens.count).reshape(-1, tokens.width).mT
    return PlacedEntries(tokens, places.reshape(1, -1, *lattice))


@reads("AveragePool", "GlobalAveragePool")
def _pooled(walk: Walk, step: Step, given: list[Any]) -> PlacedEntries:
    x = walk.entries(given[0])
    rows, lattice = pooled_places(step, x.places)
    weight = torch.full((1, rows.shape[1]), 1 / rows.shape[1], dtype=torch.float64)
    tokens = mapped(walk, walk.laid(x, rows), weight, None, step.name)
    return PlacedEntries(tokens, torch.arange(tokens.count).reshape(1, x.shape[1], *lattice))


@reads("ReduceMean", "ReduceSum")
def _reduced(walk: Walk, step: Step, given: list[Any]) -> Any:
    value, mean = given[0], step.kind == "ReduceMean"
    axes, keep = reduced_axes(step, given), bool(step.get("keepdims", 1))
    last = axes == [len(value.shape) - 1] and keep and mean
    if last and isinstance(value, NormPart) and value.kind == "square":
        return NormPart("power", value.of, centred=value.centred)
    if last and isinstance(value, Polynomial) and value.is_square:
        return NormPart("power", value.of)
    x = walk.entries(value)
    if last:
        return NormPart("mean", x)
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    many = 1
    for axis in axes:
        many *= x.shape[axis]
    shape = [1 if axis in axes else n for axis, n in enumerate(x.shape) if keep or axis in kept]
    if mean and x.shape[-1] * many == x.places.numel() and len(x.shape) - 1 not in axes:
        return walk.placed(walk.run.mean(walk.matrix(x), step.name), tuple(shape))
    rows = x.places.permute(*kept, *axes).reshape(-1, many)
    weight = torch.full((1, many), 1 / many if mean else 1.0, dtype=torch.float64)
    tokens = mapped(walk, walk.laid(x, rows), weight, None, step.name)
    return PlacedEntries(tokens, torch.arange(tokens.count).reshape(shape))


@reads("BatchNormalization")
def _batch_norm(walk: Walk, step: Step, given: list[Any]) -> PlacedEntries:
    x = walk.entries(given[0])
    node, places = walk.whole(x)
    gain, shift, mean, variance = (
        each.double().reshape(-1, *[1] * (len(x.shape) - 2)) for each in given[1:5]
    )
    factor = gain / (variance + step.get("epsilon", 1e-5)).sqrt()
    fixed = FixedNorm(*(in_tokens(node, places, each) for each in (factor, mean, shift)))
    return PlacedEntries(TokenSource(walk.run.batch_norm(node, fixed, step.name)), places)


@reads("LayerNormalization")
def _layer_norm(walk: Walk, step: Step, given: list[Any]) -> PlacedEntries:
    x, gain, shift = walk.entries(given[0]), given[1], [*given, None][2]
    node = walk.matrix(x)
    y = walk.run.normalise(
        node, gain, shift, step.get("epsilon", 1e-5), centred=True, name=step.name
    )
    return walk.placed(y, x.shape)
