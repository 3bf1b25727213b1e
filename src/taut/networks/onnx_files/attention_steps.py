"""Attention in ONNX files: products of queries and keys, softmax, product with the values."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.networks.onnx_files.execution import softmax_axis
from taut.networks.onnx_files.step import Step
from taut.networks.onnx_files.symbols import PlacedEntries, ScoreProduct
from taut.networks.onnx_files.walk import Walk, reads
from taut.networks.operations.attention_parameters import Heads
from taut.networks.operations.linear import Affine

SOFTMAX = nn.Softmax(dim=-1)
HIDES = 1e30  # files write the least number of float32 where a key is not seen


def scores(walk: Walk, left: PlacedEntries, right: PlacedEntries) -> ScoreProduct:
    """Two values multiplied: queries and keys."""
    front = left.shape[:-2]
    if len(left.shape) < 2 or right.shape[:-2] != front or left.shape[-1] != right.shape[-2]:
        raise walk.unknown("queries and keys must have the same heads and the same width")
    return ScoreProduct(left, right.moved(right.places.mT))


@reads("Softmax")
def _softmax(walk: Walk, step: Step, given: list[Any]) -> Any:
    value = given[0]
    softmax_axis(step, len(value.shape))
    if isinstance(value, ScoreProduct) and not value.weights:
        return ScoreProduct(value.queries, value.keys, value.scale, value.bias, weights=True)
    x = walk.entries(value)
    return walk.placed(walk.run(SOFTMAX, walk.matrix(x), step.name), x.shape)


@reads("Where")
def _where(walk: Walk, step: Step, given: list[Any]) -> ScoreProduct:
    """Hidden scores; those that are set to less than −1e30 instead weigh nothing either."""
    seen, value, other = given
    if isinstance(value, torch.Tensor) and isinstance(seen, torch.Tensor):  # the other way round
        seen, value, other = ~seen, other, value
    fixed = isinstance(seen, torch.Tensor) and isinstance(other, torch.Tensor)
    if not fixed or not isinstance(value, ScoreProduct) or bool((other > -HIDES).any()):
        raise walk.unknown("it may only hide scores of attention, by minus infinity")
    hidden = torch.where(seen, 0.0, -torch.inf)
    return biased(value, hidden.double().expand(value.shape))


def biased(value: ScoreProduct, bias: torch.Tensor) -> ScoreProduct:
    """Scores with something fixed added."""
    term = bias if value.bias is None else value.bias + bias
    return ScoreProduct(value.queries, value.keys, value.scale, term)


def attended(walk: Walk, step: Step, weights: ScoreProduct, values: PlacedEntries) -> Any:
    """Softmax weights times values: attention with the linear maps that made all three."""
    *front, queries, keys = weights.shape
    if values.shape[:-1] != (*front, keys):
        raise walk.unknown("weights and values must have the same heads and keys")
    x, query = _projection(walk, weights.queries)
    y, key = _projection(walk, weights.keys)
    z, value = _projection(walk, values)
    if y is not z:
        if y.tokens != z.tokens:
            raise walk.unknown("keys and values must be made of equally many tokens")
        y, key, value = _beside(walk, y, key, z, value)
    scale = weights.scale * weights.queries.factor * weights.keys.factor
    if not 0 < scale < float("inf"):
        raise walk.unknown(f"the scale of its scores is {scale:g}, which must be positive")
    heads = weights.queries.places[..., 0, 0].numel()
    bias, mask = None, None
    if weights.bias is not None:
        bias, mask = _hidden(weights.bias.reshape(heads, queries, keys))
    node = walk.run.attention(
        x, Heads(query, key, value, None, heads, heads, scale),
        context=None if x is y else y, mask=mask, bias=bias, name=step.name,
    )  # fmt: skip
    node = node if values.factor == 1 else walk.run.scale(node, values.factor)
    width = values.shape[-1]
    found = walk.placed(node, (queries, heads, width))
    return found.moved(found.places.transpose(0, 1).reshape(*front, queries, width))


def _hidden(bias: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The term of the scores, and a mask where it hides keys.

    A key whose score is lowered by 1e30 beside another one has a weight below e^(−1e29), which is
    nothing as executed, and less in exact arithmetic than what bounds add for underflow.
    """
    seen = bias > -HIDES
    if not bool(seen.any(dim=-1).all()) or bool((bias[seen] < -HIDES / 10).any()):
        seen = bias > -torch.inf
    mask = None if bool(seen.all()) else seen[None]
    return torch.where(seen, bias, 0.0), mask


def _projection(walk: Walk, part: PlacedEntries) -> tuple[Any, Affine]:
    """Tokens, and the linear map that makes queries, keys or values of them, head by head.

    Entries that are not the same map of every token, such as those of rotary positions, are laid
    out token by token first; the map only takes the heads apart then.
    """
    if part.tokens.is_image:
        raise walk.unknown("its queries, keys and values must be made of tokens")
    places = part.places.reshape(-1, *part.shape[-2:])  # (heads, tokens, width)
    token, row = places // part.tokens.width, places % part.tokens.width
    order, rows = token[0, :, 0], row[:, 0]
    if not (bool((token == order[:, None]).all()) and bool((row == rows[:, None]).all())):
        plain = PlacedEntries(part.tokens, part.places)  # the factor is part of the scale
        x = walk.laid(plain, places.transpose(0, 1).flatten(1))
        return x, (torch.eye(x.width, dtype=torch.float64), None)
    x, (weight, bias) = part.tokens.affine()
    if not torch.equal(order, torch.arange(x.tokens)):
        x = _chosen(walk, x, order)
    flat = rows.flatten()
    return x, (weight[flat], None if bias is None else bias[flat])


def _beside(walk: Walk, y: Any, key: Affine, z: Any, value: Affine) -> tuple[Any, Affine, Affine]:
    """Keys and values of different tokens as maps of one, which has both side by side."""
    before, after = (
        (torch.cat((weight, weight.new_zeros(len(weight), width)), dim=1))
        for (weight, _), width in ((key, z.width), (value, y.width))
    )
    after = after.roll(y.width, dims=1)  # the values read the second half
    return walk.run.beside(y, z), (before, key[1]), (after, value[1])


def _chosen(walk: Walk, x: Any, order: torch.Tensor) -> Any:
    """Some tokens, in another order."""
    assert walk.step is not None
    return walk.run.rearrange(
        x, order[:, None] * x.width + torch.arange(x.width), walk.step.name
    )  # fmt: skip
