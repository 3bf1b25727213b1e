"""DINOv2: as ViT, with a learned scale on every branch, and plain or gated feed-forward maps."""

from __future__ import annotations

from dataclasses import replace

from taut.models.architectures.description import (
    Architecture,
    Branch,
    FeedForwardDescription,
    LayerDescription,
    hugging_face,
)
from taut.models.architectures.vit import VIT

MODELS = (("dinov2", "Dinov2"),)

DINOV2 = Architecture(
    "dinov2",
    MODELS,
    attention=(
        replace(VIT.attention[0], classes=hugging_face(MODELS, "Attention"), replaceable=False),
    ),
    feed_forward=(
        replace(VIT.feed_forward[0], classes=hugging_face(MODELS, "MLP")),
        FeedForwardDescription(
            classes=hugging_face(MODELS, "SwiGLUFFN"),
            gate="gate_proj",
            first="up_proj",
            second="down_proj",
            activation="act_fn",
        ),
    ),
    layers=(
        LayerDescription(
            classes=hugging_face(MODELS, "Layer"),
            branches=(
                Branch("attention", "norm1", "self", then=("layer_scale1",)),
                Branch("mlp", "norm2", then=("layer_scale2",)),
            ),
            dropouts=("drop_path.drop_prob",),
        ),
    ),
)
