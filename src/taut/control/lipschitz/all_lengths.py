"""A bound of a Lipschitz transformer for all inputs, with any number of tokens that it takes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from torch import nn

from taut._base.bound import Bound
from taut._base.domain import Everywhere
from taut._base.rounding import enlarged, times
from taut.networks import certify

if TYPE_CHECKING:
    from taut.control.lipschitz.transformer import LipschitzTransformer


def for_all_inputs(
    module: nn.Module, model: LipschitzTransformer, norm: Literal["l2", "token"]
) -> Bound:
    """The bound of a model, or of its features, whatever the inputs are.

    In the largest token no constant is larger for fewer tokens. In l2 it can be: the mean of n
    tokens has the constant 1/√n, and without the others a token may be seen by more. The mean is
    one row, which moves no farther than the largest token allows, and a single token in l2 does as
    much. Causal models are models of more tokens whose last outputs are not looked at. Other models
    are bounded at every number of tokens.
    """
    if not model.text:
        assert model.image is not None
        return _found(module, model.image, norm)
    shape = (model.tokens, model.width)
    if model.pool == "all":
        # It takes no fewer tokens. They are together at most √tokens times as long as the longest.
        found = _found(module, shape, "l2")
        if norm == "l2":
            return found
        longer = enlarged(math.sqrt(model.tokens), 1)
        one, other = found._replace(upper=times(found.upper, longer)), _found(module, shape, norm)
        return one._replace(norm=other.norm) if one.upper < other.upper else other
    if norm == "token":
        return _found(module, shape, norm)
    if model.pool == "mean":
        whole = _found(module, shape, "l2")
        return whole._replace(upper=_found(module, shape, "token").upper)
    if all(block.attention.causal for block in model.blocks):
        return _found(module, shape, "l2")
    many = [_found(module, (n, model.width), "l2") for n in range(1, model.tokens + 1)]
    return max(many, key=lambda bound: float(bound.upper))


def _found(module: nn.Module, shape: tuple[int, ...], norm: Literal["l2", "token"]) -> Bound:
    """The bound for all inputs of a shape."""
    bound = certify(module, Everywhere(shape=shape), norm=norm, measure=False).bound
    return bound._replace(lower=0.0, upper=float(bound.upper[0]))
