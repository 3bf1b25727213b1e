"""Tiny models of many architectures, with inputs, to see whether their attention is captured."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

_TEXT = {
    "vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 48,
}  # fmt: skip
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_ROPE = {**_TEXT, **_ENDS, "num_key_value_heads": 2}
_PAIR = {
    "vocab_size": 60, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48, "max_position_embeddings": 64, "decoder_start_token_id": 0,
    "forced_eos_token_id": 2, **_ENDS,
}  # fmt: skip
_PATCHES = {"image_size": 32, "patch_size": 8, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4}  # fmt: skip


def _clip() -> Any:
    config = transformers.CLIPConfig(
        text_config={**_TEXT, **_ENDS, "max_position_embeddings": 16},
        vision_config={**_PATCHES, "intermediate_size": 48},
        projection_dim=16,
    )
    return transformers.CLIPModel(config)


# Name: class, settings of its configuration, kind of input.
KINDS: dict[str, tuple[str, dict[str, Any], str]] = {
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 60, "n_embd": 32, "n_layer": 2, "n_head": 4,
             "n_positions": 32, "bos_token_id": 1, "eos_token_id": 2}, "text"),
    "llama": ("LlamaForCausalLM", _ROPE, "text"),
    "qwen2": ("Qwen2ForCausalLM", _ROPE, "text"),
    "qwen3": ("Qwen3ForCausalLM", {**_ROPE, "head_dim": 8}, "text"),
    "mistral": ("MistralForCausalLM", {**_ROPE, "sliding_window": 4}, "text"),
    "gemma2": ("Gemma2ForCausalLM", {**_ROPE, "head_dim": 8}, "text"),
    "gemma3": ("Gemma3ForCausalLM", {**_ROPE, "head_dim": 8}, "text"),
    "mixtral": ("MixtralForCausalLM", {**_ROPE, "num_local_experts": 4}, "text"),
    "gpt-oss": ("GptOssForCausalLM", {**_ROPE, "head_dim": 8, "num_local_experts": 4}, "text"),
    "bert": ("BertModel", _TEXT, "text"),
    "roberta": ("RobertaModel", _TEXT, "text"),
    "deberta": ("DebertaModel", _TEXT, "text"),
    "deberta-v2": ("DebertaV2Model", {**_TEXT, "relative_attention": True,
                   "pos_att_type": ["p2c", "c2p"]}, "text"),
    "mpnet": ("MPNetModel", _TEXT, "text"),
    "distilbert": ("DistilBertModel", {"vocab_size": 60, "dim": 32, "n_layers": 2, "n_heads": 4,
                   "hidden_dim": 48}, "text"),
    "albert": ("AlbertModel", {**_TEXT, "embedding_size": 16}, "text"),
    "electra": ("ElectraModel", {**_TEXT, "embedding_size": 32}, "text"),
    "t5": ("T5ForConditionalGeneration", {"vocab_size": 60, "d_model": 32, "d_kv": 8, "d_ff": 48,
           "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}, "pair"),
    "marian": ("MarianMTModel", _PAIR, "pair"),
    "bart": ("BartForConditionalGeneration", _PAIR, "pair"),
    "pegasus": ("PegasusForConditionalGeneration", _PAIR, "pair"),
    "whisper": ("WhisperForConditionalGeneration", {**_PAIR, "max_target_positions": 32,
                "max_source_positions": 10, "num_mel_bins": 8, "suppress_tokens": [],
                "begin_suppress_tokens": []}, "audio pair"),
    "wav2vec2": ("Wav2Vec2Model", {**_TEXT, "conv_dim": (16, 16), "conv_stride": (4, 4),
                 "conv_kernel": (8, 8), "num_feat_extract_layers": 2,
                 "num_conv_pos_embeddings": 4, "num_conv_pos_embedding_groups": 2}, "audio"),
    "vit": ("ViTModel", {**_PATCHES, "intermediate_size": 48}, "image"),
    "dinov2": ("Dinov2Model", _PATCHES, "image"),
    "swin": ("SwinModel", {"image_size": 32, "patch_size": 4, "embed_dim": 16, "depths": [2, 2],
             "num_heads": [2, 4], "window_size": 4}, "image"),
    "xlnet": ("XLNetModel", {"vocab_size": 60, "d_model": 32, "n_layer": 2, "n_head": 4,
              "d_inner": 48}, "text"),
    "longformer": ("LongformerModel", {**_TEXT, "attention_window": 4,
                   "max_position_embeddings": 40, "pad_token_id": 1}, "long text"),
    "bloom": ("BloomModel", {"vocab_size": 60, "hidden_size": 32, "n_layer": 2, "n_head": 4},
              "text"),
    "falcon": ("FalconModel", {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
               "num_attention_heads": 4, "attn_implementation": "eager"}, "text"),
    "opt": ("OPTModel", {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2,
            "num_attention_heads": 4, "ffn_dim": 48, "max_position_embeddings": 32,
            "word_embed_proj_dim": 32}, "text"),
    "gpt-neox": ("GPTNeoXModel", _TEXT, "text"),
    "phi": ("PhiModel", {**_TEXT, **_ENDS}, "text"),
    "olmo2": ("Olmo2Model", _ROPE, "text"),
    "clip": ("", {}, "text and image"),
}  # fmt: skip


def tiny(name: str) -> tuple[Any, dict[str, Any]]:
    """A model in evaluation mode and inputs of two samples."""
    torch.manual_seed(0)
    kind, settings, needs = KINDS[name]
    if name == "clip":
        model = _clip()
    else:
        chosen = getattr(transformers, kind)
        model = chosen(chosen.config_class(**settings))
    ids = torch.randint(3, 60, (2, 7))
    image = torch.randn(2, 3, 32, 32)
    inputs = {
        "text": {"input_ids": ids},
        "long text": {"input_ids": torch.randint(3, 60, (2, 16))},
        "pair": {"input_ids": ids, "decoder_input_ids": ids},
        "audio": {"input_values": torch.randn(2, 400)},
        "audio pair": {"input_features": torch.randn(2, 8, 20), "decoder_input_ids": ids},
        "image": {"pixel_values": image},
        "text and image": {"input_ids": ids, "pixel_values": image},
    }[needs]
    return model.eval(), inputs


def attentions(output: Any) -> list[Any]:
    """All attention weights that a model gives out when asked."""
    found: list[Any] = []
    for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
        found += [t for t in getattr(output, name, None) or () if t is not None]
    for name in ("text_model_output", "vision_model_output"):
        if getattr(output, name, None) is not None:
            found += attentions(getattr(output, name))
    return found
