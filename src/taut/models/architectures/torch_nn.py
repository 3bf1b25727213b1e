"""torch.nn: attention with one matrix for queries, keys and values, or three; and its layers.

The attention layers of :mod:`taut.control` keep their weights in the same places; L2 attention has
no keys of its own.
"""

from __future__ import annotations

from taut.models.architectures.description import (
    Architecture,
    AttentionDescription,
    FeedForwardDescription,
)

_ATTENTION = "torch.nn.modules.activation.MultiheadAttention"
_LAYERS = "torch.nn.modules.transformer.Transformer"

TORCH_NN = Architecture(
    "torch.nn",
    (),
    attention=(
        AttentionDescription(
            classes=(_ATTENTION,),
            fused="in_proj_weight",
            orders=(("query", "key", "value"), ("query", "value")),
            bias="in_proj_bias",
            output="out_proj",
            heads="num_heads",
            dropouts=("dropout",),
        ),
        AttentionDescription(
            classes=(_ATTENTION,),
            query="q_proj_weight",
            key="k_proj_weight",
            value="v_proj_weight",
            bias="in_proj_bias",
            output="out_proj",
            heads="num_heads",
            dropouts=("dropout",),
        ),
    ),
    feed_forward=(
        FeedForwardDescription(
            classes=(f"{_LAYERS}EncoderLayer", f"{_LAYERS}DecoderLayer"),
            first="linear1",
            second="linear2",
            activation="activation",
            dropouts=("dropout.p",),
        ),
    ),
)
