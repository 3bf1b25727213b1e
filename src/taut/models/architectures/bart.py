"""BART and Marian: one class for attention to itself and to the encoder, norms after the sums."""

from __future__ import annotations

from taut.models.architectures.description import (
    Architecture,
    AttentionDescription,
    Branch,
    FeedForwardDescription,
    LayerDescription,
    hugging_face,
)

MODELS = (("marian", "Marian"), ("bart", "Bart"))
_ITSELF = Branch("self_attn", "self_attn_layer_norm", "self")
_ACROSS = Branch("encoder_attn", "encoder_attn_layer_norm", "cross")
_FORWARD = Branch("", "final_layer_norm")

BART = Architecture(
    "bart",
    MODELS,
    attention=(
        AttentionDescription(
            classes=hugging_face(MODELS, "Attention"),
            query="q_proj",
            key="k_proj",
            value="v_proj",
            output="out_proj",
            heads="num_heads",
            scale="scaling",
            dropouts=("dropout",),
            cross_place="encoder_attn",
            replaceable=True,
        ),
    ),
    feed_forward=(
        FeedForwardDescription(
            classes=hugging_face(MODELS, "EncoderLayer", "DecoderLayer"),
            first="fc1",
            second="fc2",
            activation="activation_fn",
            dropouts=("dropout", "activation_dropout"),
        ),
    ),
    layers=(
        LayerDescription(
            classes=hugging_face(MODELS, "EncoderLayer"),
            branches=(_ITSELF, _FORWARD),
            norm_first=False,
        ),
        LayerDescription(
            classes=hugging_face(MODELS, "DecoderLayer"),
            branches=(_ITSELF, _ACROSS, _FORWARD),
            norm_first=False,
        ),
    ),
)
