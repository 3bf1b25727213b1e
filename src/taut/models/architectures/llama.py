"""Llama, Mistral, Mixtral, Qwen2 and Qwen3: rotary positions, grouped keys, gated maps."""

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

MODELS = (
    ("llama", "Llama"),
    ("mistral", "Mistral"),
    ("mixtral", "Mixtral"),
    ("qwen2", "Qwen2"),
    ("qwen2_moe", "Qwen2Moe"),
    ("qwen3", "Qwen3"),
    ("qwen3_moe", "Qwen3Moe"),
)
_WITH_MLP = tuple(model for model in MODELS if model[1] != "Mixtral")  # which has experts only

LLAMA = Architecture(
    "llama",
    MODELS,
    attention=(
        AttentionDescription(
            classes=hugging_face(MODELS, "Attention"),
            query="q_proj",
            key="k_proj",
            value="v_proj",
            output="o_proj",
            heads="config.num_attention_heads",
            groups="num_key_value_groups",
            scale="scaling",
            query_norm="q_norm",  # Qwen3 has them, the others have not
            key_norm="k_norm",
            dropouts=("attention_dropout",),
        ),
    ),
    feed_forward=(
        FeedForwardDescription(
            classes=hugging_face(_WITH_MLP, "MLP"),
            gate="gate_proj",
            first="up_proj",
            second="down_proj",
            activation="act_fn",
        ),
    ),
    layers=(
        LayerDescription(
            classes=hugging_face(MODELS, "DecoderLayer"),
            branches=(
                Branch("self_attn", "input_layernorm", "self"),
                Branch("mlp", "post_attention_layernorm"),
            ),
        ),
    ),
    rms_norms=(RmsNormDescription(hugging_face(MODELS, "RMSNorm")),),
)
