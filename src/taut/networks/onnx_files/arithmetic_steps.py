"""Sums, products and quotients in ONNX files: residuals, gates, factors, norm layers, GELU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from taut.networks.onnx_files.attention_steps import biased
from taut.networks.onnx_files.polynomial import Polynomial, polynomial
from taut.networks.onnx_files.step import Step
from taut.networks.onnx_files.symbols import NormPart, PlacedEntries, ScoreProduct, TokenSource
from taut.networks.onnx_files.walk import Walk, in_tokens, reads
from taut.networks.operations.normalisation import FixedNorm


@reads("Add", "Sub")
def _sum(walk: Walk, step: Step, given: list[Any]) -> Any:
    left, right = given
    if step.kind == "Sub":
        if isinstance(right, NormPart) and right.kind == "mean" and right.of.same(left):
            return NormPart("centred", left, centred=True)
        right = _times(walk, right, torch.tensor(-1.0, dtype=torch.float64))
    if isinstance(left, torch.Tensor):
        left, right = right, left
    if isinstance(right, torch.Tensor):
        return _plus(walk, left, right)
    for one, other in ((left, right), (right, left)):  # a part of an activation that is written out
        if isinstance(one, Polynomial) and one.activation() is None:
            both = _as_polynomial(one, other)
            if both is not None:
                return one.plus(both)
    return _together_by(walk, walk.run.add, walk.entries(left), walk.entries(right))


def _as_polynomial(one: Polynomial, other: Any) -> Polynomial | None:
    """The other as a function of the same entries."""
    if isinstance(other, PlacedEntries) and one.of.alike(other):
        return polynomial(other)
    return other if isinstance(other, Polynomial) and one.of.alike(other.of) else None


def _plus(walk: Walk, value: Any, fixed: torch.Tensor) -> Any:
    """Something fixed added: to scores, to a variance, a bias, or anything else."""
    number = float(fixed) if fixed.numel() == 1 else None
    if isinstance(value, ScoreProduct) and not value.weights:
        return biased(value, fixed.double().expand(value.shape))
    if isinstance(value, NormPart) and value.kind == "power" and number is not None:
        return NormPart("power", value.of, value.centred, value.epsilon + number)
    if isinstance(value, Polynomial) and number is not None:
        return value.plus(number)
    x = walk.entries(value)
    shape = np.broadcast_shapes(x.shape, tuple(fixed.shape))
    x = x.moved(x.places.expand(shape))
    if _is_bias(x, fixed):
        tokens = TokenSource(x.tokens.x, (x.tokens.map[0], fixed.reshape(-1)), x.tokens.name)  # type: ignore[index]
        return PlacedEntries(tokens, x.places)
    node, places = walk.whole(x)
    return PlacedEntries(
        TokenSource(walk.run.shift(node, in_tokens(node, places, fixed))), places
    )  # fmt: skip


def _is_bias(x: PlacedEntries, fixed: torch.Tensor) -> bool:
    """Whether a linear map waits for its bias, and this is it: one number for each output."""
    if x.tokens.map is None or x.tokens.map[1] is not None or x.factor != 1:
        return False
    width = x.tokens.width
    plain = x.shape[-1] == width and torch.equal(x.places.flatten(), torch.arange(x.tokens.count))
    return plain and fixed.numel() == width and fixed.shape[-1] == width


def _together_by(
    walk: Walk, verb: Callable[[Any, Any], Any], left: PlacedEntries, right: PlacedEntries
) -> PlacedEntries:
    """The sum or product of two values, the second laid out as the first."""
    shape = np.broadcast_shapes(left.shape, right.shape)
    left, right = (each.moved(each.places.expand(shape)) for each in (left, right))
    node, places = walk.whole(left)
    rows = in_tokens(node, places, right.places)
    return PlacedEntries(TokenSource(verb(node, walk.laid(right, rows))), places)


@reads("Mul", "Div")
def _product(walk: Walk, step: Step, given: list[Any]) -> Any:
    left, right = given
    if step.kind == "Div":
        if isinstance(right, torch.Tensor):
            return _times(walk, left, 1 / right.double())
        if isinstance(right, NormPart) and right.kind == "root":
            if isinstance(left, torch.Tensor) and bool((left == 1).all()):
                return NormPart("inverse", right.of, right.centred, right.epsilon)
            return _normalised(walk, step, left, right)
        raise walk.unknown("it divides by a value that depends on the input")
    for one, other in ((left, right), (right, left)):
        if isinstance(other, torch.Tensor):
            return _times(walk, one, other)
        if isinstance(other, NormPart) and other.kind == "inverse":
            return _normalised(walk, step, one, other)
    centred = [part.of for part in (left, right) if getattr(part, "kind", "") == "centred"]
    if len(centred) == 2 and centred[0].same(centred[1]):
        return NormPart("square", centred[0], centred=True)
    for one, other in ((left, right), (right, left)):
        first = polynomial(one) if isinstance(one, PlacedEntries) else one
        if isinstance(first, Polynomial):
            second = _as_polynomial(first, other)
            if second is not None:
                return first.times(second)
    return _together_by(walk, walk.run.product, walk.entries(left), walk.entries(right))


def _times(walk: Walk, value: Any, fixed: torch.Tensor) -> Any:
    """Something fixed as a factor: of scores, of a function, or of every entry."""
    if isinstance(value, torch.Tensor):
        return value.double() * fixed
    if fixed.numel() == 1:
        factor = float(fixed)
        if isinstance(value, ScoreProduct) and not value.weights:
            bias = None if value.bias is None else value.bias * factor
            return ScoreProduct(value.queries, value.keys, value.scale * factor, bias)
        if isinstance(value, Polynomial):
            return value.times(factor)
        x = walk.entries(value)
        shape = np.broadcast_shapes(x.shape, tuple(fixed.shape))
        return x.moved(x.places.expand(shape)).times(factor)
    x = walk.entries(value)
    x = x.moved(x.places.expand(np.broadcast_shapes(x.shape, tuple(fixed.shape))))
    node, places = walk.whole(x)
    factors = in_tokens(node, places, fixed.double())
    none = torch.zeros_like(factors)
    assert walk.step is not None
    y = walk.run.batch_norm(node, FixedNorm(factors, none, none), walk.step.name)
    return PlacedEntries(TokenSource(y), places)


@reads("Neg")
def _negative(walk: Walk, step: Step, given: list[Any]) -> Any:
    return _times(walk, given[0], torch.tensor(-1.0, dtype=torch.float64))


@reads("Erf", "Tanh", "Sigmoid")
def _function(walk: Walk, step: Step, given: list[Any]) -> Polynomial:
    value = given[0]
    if not isinstance(value, Polynomial) or value.activation() is not None:
        value = polynomial(walk.entries(value))
    found: Polynomial = value.inside(step.kind.lower())
    return found


@reads("Pow")
def _power(walk: Walk, step: Step, given: list[Any]) -> Any:
    value, exponent = given
    if not isinstance(exponent, torch.Tensor) or exponent.numel() != 1:
        raise walk.unknown("its exponent must be one number")
    power = float(exponent)
    if isinstance(value, NormPart) and value.kind == "centred" and power == 2:
        return NormPart("square", value.of, centred=True)
    first = value if isinstance(value, Polynomial) else polynomial(walk.entries(value))
    if power not in (1, 2, 3):
        raise walk.unknown(f"the exponent {power:g} is not supported")
    found = first
    for _ in range(int(power) - 1):
        found = found.times(first)
    return found


@reads("Sqrt", "Reciprocal")
def _root(walk: Walk, step: Step, given: list[Any]) -> NormPart:
    value = given[0]
    before, after = ("power", "root") if step.kind == "Sqrt" else ("root", "inverse")
    if not isinstance(value, NormPart) or value.kind != before:
        raise walk.unknown("it is known as a part of a norm layer only")
    return NormPart(after, value.of, value.centred, value.epsilon)


def _normalised(walk: Walk, step: Step, value: Any, deviation: NormPart) -> PlacedEntries:
    """X over its root mean square, or x − mean over its standard deviation."""
    if deviation.centred:
        of = value.of if isinstance(value, NormPart) and value.kind == "centred" else None
    else:
        of = value if isinstance(value, PlacedEntries) else None
    if of is None or not deviation.of.same(of) or deviation.epsilon <= 0:
        raise walk.unknown("it is neither LayerNorm nor RMSNorm with a positive epsilon")
    y = walk.run.normalise(
        walk.matrix(deviation.of), None, None, deviation.epsilon, centred=deviation.centred,
        name=step.name,
    )  # fmt: skip
    return walk.placed(y, deviation.of.shape)


@reads("Concat")
def _joined(walk: Walk, step: Step, given: list[Any]) -> PlacedEntries:
    parts = [each if isinstance(each, torch.Tensor) else walk.entries(each) for each in given]
    moving = [each for each in parts if isinstance(each, PlacedEntries)]
    axis = step.get("axis") % len(moving[0].shape)
    first = moving[0]
    if len(moving) == len(parts) and all(
        each.tokens is first.tokens and each.factor == first.factor for each in moving
    ):
        return first.moved(torch.cat([each.places for each in moving], dim=axis))
    node, found = _together(walk, moving)
    fixed = [each for each in parts if isinstance(each, torch.Tensor)]
    if fixed:  # fixed tokens first; the places put everything in order
        if axis == len(first.shape) - 1 or len(moving) > 1:
            raise walk.unknown("something fixed may only be joined to one value, as tokens")
        ahead = torch.cat([each.reshape(-1, node.width) for each in fixed])
        node = walk.run.prepend(node, ahead)
        found = [each + ahead.numel() for each in found]
    begin, ordered, rest = 0, [], iter(found)
    for part in parts:
        if isinstance(part, PlacedEntries):
            ordered.append(next(rest))
        else:
            ordered.append(torch.arange(begin, begin + part.numel()).reshape(part.shape))
            begin += part.numel()
    return PlacedEntries(TokenSource(node), torch.cat(ordered, dim=axis))


def _together(walk: Walk, parts: list[PlacedEntries]) -> tuple[Any, list[torch.Tensor]]:
    """One region or node with the entries of several, and where they are in it."""
    if len(parts) == 1:
        found = walk.placed(walk.matrix(parts[0]), parts[0].shape)
        return found.tokens.x, [found.places]
    node, places, count = None, [], 0
    for part in parts:
        one = walk.laid(part, part.places.reshape(1, -1))
        node = one if node is None else walk.run.beside(node, one)
        places.append(torch.arange(count, count + one.width).reshape(part.shape))
        count += one.width
    return node, places
