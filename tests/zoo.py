"""Tiny models of every configuration that the installed transformers can build, with inputs.

A configuration is made small by the names of its settings, whatever the architecture; a model that
cannot be built or run in this way is said to be so, with the reason.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 64, "hidden_size": 32, "d_model": 32, "n_embd": 32, "dim": 32, "embed_dim": 32,
    "intermediate_size": 40, "d_ff": 40, "ffn_dim": 40, "n_inner": 40, "hidden_dim": 40,
    "encoder_ffn_dim": 40, "decoder_ffn_dim": 40, "moe_intermediate_size": 24, "d_inner": 40,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2,
    "decoder_layers": 2, "num_encoder_layers": 2, "num_decoder_layers": 2, "depth": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 8, "d_kv": 8, "max_position_embeddings": 64, "n_positions": 64,
    "max_source_positions": 64, "max_target_positions": 64, "image_size": 32, "patch_size": 8,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "projection_dim": 16,
    "attention_head_dim": 8, "embedding_size": 32, "word_embed_proj_dim": 32, "num_mel_bins": 8,
    "max_seq_len": 64, "max_length": 64, "num_queries": 5, "sliding_window": 8, "d_head": 8,
    "attention_window": 4, "block_size": 4, "num_random_blocks": 1, "local_attn_chunk_length": 4,
    "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4,
    "v_head_dim": 8, "num_latents": 6, "d_latents": 32, "num_experts_per_tok": 2,
}  # fmt: skip
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def kinds() -> dict[str, Any]:
    """All types of models, with their classes."""
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    return {config.model_type: config for config in MODEL_MAPPING}


def shrink(config: Any) -> Any:
    """Make a configuration small, and all those inside of it."""
    for name, value in SMALL.items():
        old = getattr(config, name, None)
        if type(old) is int and old > value:
            _set(config, name, value)
    for name, value in ENDS.items():
        old = getattr(config, name, None)
        if isinstance(old, int) and old >= 60:
            _set(config, name, value)
    for name in list(vars(config)):
        inner = getattr(config, name, None)
        if isinstance(inner, transformers.PretrainedConfig):
            shrink(inner)
        if name in ("layer_types", "mlp_layer_types") and isinstance(inner, list):
            setattr(config, name, inner[:2])
    return config


def _set(config: Any, name: str, value: int) -> None:
    with suppress(AttributeError, NotImplementedError):  # a name that only stands for another
        setattr(config, name, value)


def built(kind: str) -> tuple[Any, dict[str, Any]]:
    """A tiny model in evaluation mode, and inputs of two samples."""
    torch.manual_seed(0)
    config = kinds()[kind]
    given = {name: SMALL[name] for name in SMALL if name in inspect.signature(config).parameters}
    made = None
    for settings in ({}, given):
        try:
            made = shrink(config(**settings))
            break
        except Exception:  # whatever a configuration objects to
            continue
    if made is None:
        raise ValueError("no configuration")
    size = sum(p.numel() for p in _meta(made).parameters())
    if size > 30_000_000:
        raise ValueError(f"still has {size:,} parameters")
    model = transformers.AutoModel.from_config(made, attn_implementation="eager").eval()
    return model, inputs_of(model)


def _meta(config: Any) -> Any:
    with torch.device("meta"):
        return transformers.AutoModel.from_config(config)


def inputs_of(model: Any) -> dict[str, Any]:
    """What a model reads, by the name of its main input and of its arguments."""
    names = inspect.signature(model.forward).parameters
    ids = torch.randint(3, 60, (2, 8))
    size = getattr(model.config, "image_size", None) or 32
    size = size if isinstance(size, int) else size[0]
    channels = getattr(model.config, "num_channels", 3)
    made = {
        "input_ids": ids,
        "pixel_values": torch.randn(2, channels if isinstance(channels, int) else 3, size, size),
        "input_values": torch.randn(2, 4000),
        "input_features": torch.randn(2, getattr(model.config, "num_mel_bins", 8), 40),
        "decoder_input_ids": ids,
        "bbox": torch.zeros(2, 8, 4, dtype=torch.long),
    }
    wanted = [n for n in made if n in names and (n != "decoder_input_ids" or "input_ids" in names)]
    if model.main_input_name in made:
        wanted = [n for n in wanted if n == model.main_input_name or n in (
            "decoder_input_ids", "bbox", "input_ids", "pixel_values")]  # fmt: skip
    return {name: made[name] for name in wanted}
