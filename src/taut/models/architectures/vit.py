"""ViT: a pre-norm encoder of image patches."""

from __future__ import annotations

from taut.models.architectures.description import (
    Architecture,
    AttentionDescription,
    Branch,
    FeedForwardDescription,
    LayerDescription,
    hugging_face,
)

MODELS = (("vit", "ViT"),)

VIT = Architecture(
    "vit",
    MODELS,
    attention=(
        AttentionDescription(
            classes=hugging_face(MODELS, "Attention"),
            query="q_proj",
            key="k_proj",
            value="v_proj",
            output="o_proj",
            heads="num_attention_heads",
            scale="scaling",
            dropouts=("attention_dropout",),
            replaceable=True,
        ),
    ),
    feed_forward=(
        FeedForwardDescription(
            classes=hugging_face(MODELS, "MLP"),
            first="fc1",
            second="fc2",
            activation="activation_fn",
        ),
    ),
    layers=(
        LayerDescription(
            classes=hugging_face(MODELS, "Layer"),
            branches=(
                Branch("attention", "layernorm_before", "self"),
                Branch("mlp", "layernorm_after"),
            ),
            dropouts=("dropout.p",),
        ),
    ),
)
