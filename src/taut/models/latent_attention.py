"""Multi-head latent attention, as in DeepSeek-V2 and V3: keys and values from a shared latent.

Each head's queries have a part that is compared with the head's own keys, made from the latent, and
a rotary part that is compared with one key that all heads share.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import nn

from taut.models.architectures.linear_map import linear_map
from taut.models.architectures.registry import number_of_heads
from taut.models.blocks import Only, matches, weight_of
from taut.models.weight import Weight

_WIDTHS = ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


class LatentAttention(NamedTuple):
    """The maps of one module that are each head's own.

    Attributes
    ----------
    path
        Where the module is in the model.
    query
        For every head the rows of its plain queries, then those of its rotary ones.
    key_value
        For every head the rows of its plain keys, then those of its values.
    heads
        Number of heads.
    plain, rotary, value
        How many rows of each kind a head has.
    """

    path: str
    query: Weight
    key_value: Weight
    heads: int
    plain: int
    rotary: int
    value: int


def find_latent_attention(model: nn.Module, only: Only = None) -> list[LatentAttention]:
    """All modules of latent attention whose paths match, by the names that transformers uses."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    found = []
    for path, module in model.named_modules():
        widths: list[Any] = [getattr(module, name, None) for name in _WIDTHS]
        heads = number_of_heads(module)
        if heads is None or not all(isinstance(width, int) for width in widths):
            continue
        query: Any = getattr(module, "q_b_proj", None)
        query = linear_map(getattr(module, "q_proj", None) if query is None else query)
        key_value = linear_map(getattr(module, "kv_b_proj", None))
        if query is None or key_value is None or not matches(path, only):
            continue
        plain, rotary, value = widths
        fits = (len(query.weight), len(key_value.weight)) == (
            heads * (plain + rotary), heads * (plain + value),
        )  # fmt: skip
        if fits:
            first, second = (weight_of(each, names) for each in (query, key_value))
            found.append(LatentAttention(path, first, second, heads, plain, rotary, value))
    return found
