"""GPT-2: queries, keys and values side by side in one transposed matrix (Conv1D)."""

from __future__ import annotations

from taut.models.architectures.description import (
    Architecture,
    AttentionDescription,
    Branch,
    FeedForwardDescription,
    LayerDescription,
    hugging_face,
)

MODELS = (("gpt2", "GPT2"),)

GPT2 = Architecture(
    "gpt2",
    MODELS,
    attention=(
        AttentionDescription(
            classes=hugging_face(MODELS, "Attention"),
            query="q_attn",  # of cross-attention, whose c_attn holds keys and values
            fused="c_attn",
            orders=(("query", "key", "value"), ("key", "value")),
            output="c_proj",
            heads="num_heads",
            scale="scaling",
            dropouts=("attn_dropout.p", "resid_dropout.p"),
            cross_flag="is_cross_attention",
            replaceable=True,
        ),
    ),
    feed_forward=(
        FeedForwardDescription(
            classes=hugging_face(MODELS, "MLP"),
            first="c_fc",
            second="c_proj",
            activation="act",
            dropouts=("dropout.p",),
        ),
    ),
    layers=(
        LayerDescription(
            classes=hugging_face(MODELS, "Block"),
            branches=(Branch("attn", "ln_1", "self"), Branch("mlp", "ln_2")),
        ),
    ),
)
