"""T5: no scale of the scores, relative positions, plain or gated feed-forward maps."""

from __future__ import annotations

from taut.models.architectures.description import (
    Architecture,
    AttentionDescription,
    Branch,
    FeedForwardDescription,
    LayerDescription,
    RmsNormDescription,
    hugging_face,
)

MODELS = (("t5", "T5"),)

T5 = Architecture(
    "t5",
    MODELS,
    attention=(
        AttentionDescription(
            classes=hugging_face(MODELS, "Attention"),
            query="q",
            key="k",
            value="v",
            output="o",
            heads="n_heads",
            scale="scaling",
            dropouts=("dropout",),
            cross_place="EncDecAttention",
        ),
    ),
    feed_forward=(
        FeedForwardDescription(
            classes=hugging_face(MODELS, "DenseActDense"),
            first="wi",
            second="wo",
            activation="act",
            dropouts=("dropout.p",),
        ),
        FeedForwardDescription(
            classes=hugging_face(MODELS, "DenseGatedActDense"),
            gate="wi_0",
            first="wi_1",
            second="wo",
            activation="act",
            dropouts=("dropout.p",),
        ),
    ),
    layers=(
        LayerDescription(
            classes=hugging_face(MODELS, "LayerFF"),
            branches=(Branch("DenseReluDense", "layer_norm", then=("dropout",)),),
        ),
    ),
    rms_norms=(RmsNormDescription(hugging_face(MODELS, "LayerNorm")),),
)
