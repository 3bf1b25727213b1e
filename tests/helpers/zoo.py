"""Tiny models of every configuration that the installed transformers can build, with inputs.

A configuration is made small by the names of its settings, whatever the architecture; a model that
cannot be built or run in this way is said to be so, with the reason.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
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


# Settings that other settings must agree with: left alone where making them small goes wrong.
DELICATE = {
    "head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "attention_head_dim", "d_kv",
    "num_key_value_heads", "kv_lora_rank", "q_lora_rank", "d_head", "image_size", "patch_size",
    "embed_dim", "dim", "num_mel_bins", "embedding_size", "hidden_dim", "depth", "num_heads",
}  # fmt: skip
WIDE = {name for name in SMALL if "layer" not in name and name != "vocab_size"}
LARGEST = 60_000_000  # parameters


def shrink(config: Any, small: dict[str, int]) -> Any:
    """Make a configuration small, and all those inside of it."""
    for name, value in small.items():
        old = getattr(config, name, None)
        if type(old) is int and old > value:
            _set(config, name, value)
    if hasattr(config, "qk_rope_head_dim") and "head_dim" in small:
        # Of latent attention: what is rotated, and as many keys as queries.
        _set(config, "head_dim", config.qk_rope_head_dim)
        _set(config, "num_key_value_heads", config.num_attention_heads)
    for name, value in ENDS.items():
        old = getattr(config, name, None)
        if isinstance(old, int) and old >= 60:
            _set(config, name, value)
    for name in list(vars(config)):
        inner = getattr(config, name, None)
        if isinstance(inner, transformers.PretrainedConfig):
            shrink(inner, small)
        if name in ("layer_types", "mlp_layer_types") and isinstance(inner, list):
            several = list(dict.fromkeys(inner))  # of a hybrid, one layer of each kind
            setattr(config, name, several[:2] if len(several) > 1 else inner[:2])
    return config


def _set(config: Any, name: str, value: int) -> None:
    with suppress(AttributeError, NotImplementedError):  # a name that only stands for another
        setattr(config, name, value)


def built(kind: str) -> tuple[Any, dict[str, Any]]:
    """A tiny model in evaluation mode and inputs of two samples that it runs on."""
    reasons = []
    for left in (set(), DELICATE, WIDE):
        small = {name: value for name, value in SMALL.items() if name not in left}
        try:
            model = _model(kinds()[kind], small)
        except Exception as error:  # whatever a configuration objects to
            reasons.append(f"{type(error).__name__}: {error}".splitlines()[0][:100])
            continue
        for inputs in inputs_of(model):
            try:
                with torch.no_grad():
                    model(**inputs)
                return model, inputs
            except Exception as error:
                reasons.append(f"{type(error).__name__}: {error}".splitlines()[0][:100])
    raise ValueError("; ".join(dict.fromkeys(reasons)))


def _model(config: Any, small: dict[str, int]) -> Any:
    torch.manual_seed(0)
    made = shrink(config(), small)
    with torch.device("meta"):
        size = sum(p.numel() for p in transformers.AutoModel.from_config(made).parameters())
    if size > LARGEST:
        raise ValueError(f"has {size:,} parameters")
    return transformers.AutoModel.from_config(made, attn_implementation="eager").eval()


def inputs_of(model: Any) -> Iterator[dict[str, Any]]:
    """What a model may read, by the names of its arguments, the likeliest first."""
    names = inspect.signature(model.forward).parameters
    config = model.config
    ids = torch.randint(3, 60, (2, 8))
    size = getattr(getattr(config, "vision_config", config), "image_size", None) or 32
    size = size if isinstance(size, int) else size[0]
    channels = getattr(config, "num_channels", 3)
    bins = getattr(config, "num_mel_bins", None) or getattr(config, "input_dim", 8)
    made = {
        "input_ids": ids,
        "pixel_values": torch.randn(2, channels if isinstance(channels, int) else 3, size, size),
        "input_values": torch.randn(2, 4000),
        "input_features": torch.randn(2, bins if isinstance(bins, int) else 8, 40),
        "decoder_input_ids": ids,
        "bbox": torch.zeros(2, 8, 4, dtype=torch.long),
    }
    more = {} if "use_cache" not in names else {"use_cache": False}
    there = {name: value for name, value in made.items() if name in names}
    for chosen in (there, _only(there, "input_ids", "decoder_input_ids", "bbox"),
                   _only(there, "pixel_values"), _only(there, "input_values"),
                   _only(there, "input_features", "decoder_input_ids")):  # fmt: skip
        if chosen:
            yield {**chosen, **more}
    if "input_features" in there:
        yield {**_only(there, "decoder_input_ids"), **more,
               "input_features": made["input_features"].transpose(1, 2)}  # fmt: skip


def _only(made: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: made[name] for name in names if name in made}
