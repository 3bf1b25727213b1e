"""Small transformers of every family that has rules, and exact derivatives of them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
nn = torch.nn

WIDTH, TOKENS, CONTEXT = 16, 5, 4
_TEXT = {
    "vocab_size": 30,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
}
_IMAGE = {key: value for key, value in _TEXT.items() if key != "vocab_size"} | {
    "image_size": 8,
    "patch_size": 4,
    "num_labels": 3,
}
_PAIR = {
    "vocab_size": 30, "d_model": WIDTH, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24,
    "decoder_ffn_dim": 24, "max_position_embeddings": 16, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 0, "forced_eos_token_id": 2,
}  # fmt: skip
_T5 = {
    "vocab_size": 30, "d_model": WIDTH, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4,
}  # fmt: skip
_DINO = {key: value for key, value in _IMAGE.items() if key != "intermediate_size"}
_ROPE = {**_TEXT, "num_key_value_heads": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


def _make(name: str, **settings: Any) -> Any:
    """A model of transformers with its configuration, which its class names."""
    kind = getattr(transformers, name)
    return lambda: kind(kind.config_class(**settings))


GPT2 = {
    "vocab_size": 30, "n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 16,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MODELS: dict[str, Any] = {
    "bert": _make("BertModel", **_TEXT),
    "bert classifier": _make("BertForSequenceClassification", **_TEXT, num_labels=3),
    "roberta": _make("RobertaModel", **_TEXT),
    "electra": _make("ElectraModel", **_TEXT, embedding_size=WIDTH),
    "gpt2": _make("GPT2Model", **GPT2),
    "gpt2 lm": _make("GPT2LMHeadModel", **GPT2),
    "llama": _make("LlamaModel", **_ROPE),
    "llama lm": _make("LlamaForCausalLM", **_ROPE),
    "llama yarn": _make(
        "LlamaModel",
        **_ROPE,
        rope_parameters={
            "rope_type": "yarn",
            "factor": 4.0,
            "rope_theta": 10000.0,
            "original_max_position_embeddings": 512,
        },
        max_position_embeddings=2048,
    ),
    "mistral": _make("MistralModel", **_ROPE, sliding_window=3),
    "qwen2": _make("Qwen2Model", **_ROPE),
    "qwen2 windows": _make(
        "Qwen2Model", **_ROPE, use_sliding_window=True, sliding_window=3, max_window_layers=1
    ),
    "qwen3": _make("Qwen3Model", **_ROPE, head_dim=4),
    "vit": _make("ViTModel", **_IMAGE),
    "vit classifier": _make("ViTForImageClassification", **_IMAGE),
    "dinov2": _make("Dinov2Model", **_DINO),
    "dinov2 swiglu": _make("Dinov2Model", **_DINO, use_swiglu_ffn=True),
    "dinov2 classifier": _make("Dinov2ForImageClassification", **_DINO),
    "t5 encoder": _make("T5EncoderModel", **_T5),
    "t5": _make("T5Model", **_T5),
    "t5 gated lm": _make("T5ForConditionalGeneration", **_T5, feed_forward_proj="gated-gelu"),
    "marian": _make("MarianModel", **_PAIR, scale_embedding=True),
    "marian lm": _make("MarianMTModel", **_PAIR),
    "bart": _make("BartModel", **_PAIR),
    "bart lm": _make("BartForConditionalGeneration", **_PAIR),
    "encoder layer": lambda: nn.TransformerEncoderLayer(WIDTH, 4, 24, batch_first=True),
    "encoder layer, norm first": lambda: nn.TransformerEncoderLayer(
        WIDTH, 4, 24, norm_first=True, activation="gelu"
    ),
    "encoder": lambda: nn.TransformerEncoder(
        nn.TransformerEncoderLayer(WIDTH, 2, 24, batch_first=True), 2, norm=nn.LayerNorm(WIDTH)
    ),
    "decoder layer": lambda: nn.TransformerDecoderLayer(WIDTH, 4, 24, batch_first=True),
    "decoder": lambda: nn.TransformerDecoder(
        nn.TransformerDecoderLayer(WIDTH, 2, 24, norm_first=True), 2
    ),
    "transformer": lambda: nn.Transformer(WIDTH, 2, 1, 1, 24, batch_first=True),
    "multihead": lambda: nn.MultiheadAttention(WIDTH, 4, batch_first=True),
}
PAIRS = {
    "t5", "t5 gated lm", "marian", "marian lm", "bart", "bart lm", "decoder layer", "decoder",
    "transformer",
}  # fmt: skip
IMAGES = {"vit", "vit classifier", "dinov2", "dinov2 swiglu", "dinov2 classifier"}


class Case(NamedTuple):
    """A model in evaluation mode, inputs for it, and what its encoder reads."""

    model: Any
    x: Any
    context: Any


def case(
    name: str, *, seed: int = 0, gain: float = 1.0, scale: float = 1.0, batch: int = 2
) -> Case:
    """A model with its weights multiplied by ``gain`` and random inputs, all in float64."""
    torch.manual_seed(seed)
    model = MODELS[name]().eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            # norm layers and biases get something random, too: nothing may rest on 1 and 0
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            else:
                parameter.mul_(gain)
    shape = (3, 8, 8) if name in IMAGES else (TOKENS, WIDTH)
    x = scale * torch.randn(batch, *shape, dtype=torch.float64)
    context = scale * torch.randn(batch, CONTEXT, WIDTH, dtype=torch.float64)
    return Case(model, x, context if name in PAIRS else None)
