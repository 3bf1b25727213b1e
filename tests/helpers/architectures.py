"""Small models of every architecture that is tested: capture, blocks, certificates, swaps.

A new architecture is one entry in ``MODELS``, with the tests that it goes through.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
nn = torch.nn

TOKENS, CONTEXT = 5, 4
ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}


class Size(NamedTuple):
    """How large a model is made; its heads are always four."""

    width: int
    image: int

    @property
    def vocabulary(self) -> int:
        """How many tokens it knows."""
        return 30 * self.width // 16

    @property
    def inner(self) -> int:
        """Width between feed-forward maps."""
        return 3 * self.width // 2

    @property
    def text(self) -> dict[str, Any]:
        """Settings of most models of text."""
        return {"vocab_size": self.vocabulary, "hidden_size": self.width, "num_hidden_layers": 2,
                "num_attention_heads": 4, "intermediate_size": self.inner}  # fmt: skip

    @property
    def rotary(self) -> dict[str, Any]:
        """Settings of decoders with rotary positions and shared keys."""
        return {**self.text, **ENDS, "num_key_value_heads": 2}

    @property
    def gpt2(self) -> dict[str, Any]:
        """Settings of GPT-2."""
        return {"vocab_size": self.vocabulary, "n_embd": self.width, "n_layer": 2, "n_head": 4,
                "n_positions": self.width, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip

    @property
    def t5(self) -> dict[str, Any]:
        """Settings of T5."""
        return {"vocab_size": self.vocabulary, "d_model": self.width, "d_kv": self.width // 4,
                "d_ff": self.inner, "num_layers": 2, "num_heads": 4,
                "decoder_start_token_id": 0}  # fmt: skip

    @property
    def pair(self) -> dict[str, Any]:
        """Settings of encoder-decoder models."""
        return {"vocab_size": self.vocabulary, "d_model": self.width, "encoder_layers": 2,
                "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
                "encoder_ffn_dim": self.inner, "decoder_ffn_dim": self.inner,
                "max_position_embeddings": 2 * self.width, "decoder_start_token_id": 0,
                "forced_eos_token_id": 2, **ENDS}  # fmt: skip

    @property
    def patches(self) -> dict[str, Any]:
        """Settings of models of images."""
        return {"image_size": self.image, "patch_size": self.width // 4, "hidden_size": self.width,
                "num_hidden_layers": 2, "num_attention_heads": 4}  # fmt: skip

    @property
    def pixels(self) -> dict[str, Any]:
        """The same, where the width between feed-forward maps is a setting."""
        return {**self.patches, "intermediate_size": self.inner}


USUAL = Size(32, image=32)
SMALL = Size(16, image=8)  # for certificates: derivatives are written out
WIDTH = SMALL.width


class Model(NamedTuple):
    """An architecture: how to make it, what it reads, and which tests it goes through."""

    make: Callable[[Size], Any]
    reads: str
    tests: frozenset[str]


MODELS: dict[str, Model] = {}


def _add(
    name: str, kind: str, settings: Callable[[Size], dict[str, Any]], reads: str, *tests: str
) -> None:
    """Enter a model of transformers."""

    def make(size: Size) -> Any:
        chosen = getattr(transformers, kind)
        return chosen(chosen.config_class(**settings(size)))

    MODELS[name] = Model(make, reads, frozenset(tests))


def _add_module(name: str, make: Callable[[], Any], reads: str) -> None:
    """Enter a module of torch.nn, which is made small."""
    MODELS[name] = Model(lambda _: make(), reads, frozenset({"certify"}))


def _clip(size: Size) -> Any:
    config = transformers.CLIPConfig(
        text_config={**size.text, **ENDS, "max_position_embeddings": 16},
        vision_config=size.pixels,
        projection_dim=16,
    )
    return transformers.CLIPModel(config)


_YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10000.0,
         "original_max_position_embeddings": 512}  # fmt: skip
_ALL, _BOTH = ("capture", "certify", "swap"), ("capture", "certify")

_add("gpt2", "GPT2LMHeadModel", lambda s: s.gpt2, "text", *_ALL)
_add("gpt2 base", "GPT2Model", lambda s: s.gpt2, "text", "certify")
_add("llama", "LlamaForCausalLM", lambda s: s.rotary, "text", *_BOTH)
_add("llama base", "LlamaModel", lambda s: s.rotary, "text", "certify")
_add("llama yarn", "LlamaModel", lambda s: {**s.rotary, "rope_parameters": _YARN,
     "max_position_embeddings": 2048}, "text", "certify")  # fmt: skip
_add("mistral", "MistralForCausalLM", lambda s: {**s.rotary, "sliding_window": 3}, "text", *_BOTH)
_add("qwen2", "Qwen2ForCausalLM", lambda s: s.rotary, "text", *_BOTH)
_add("qwen2 windows", "Qwen2Model", lambda s: {**s.rotary, "use_sliding_window": True,
     "sliding_window": 3, "max_window_layers": 1}, "text", "certify")  # fmt: skip
_add("qwen3", "Qwen3ForCausalLM", lambda s: {**s.rotary, "head_dim": s.width // 4}, "text", *_BOTH)
_add("gemma2", "Gemma2ForCausalLM", lambda s: {**s.rotary, "head_dim": 8}, "text", "capture")
_add("gemma3", "Gemma3ForCausalLM", lambda s: {**s.rotary, "head_dim": 8}, "text", "capture")
_add("mixtral", "MixtralForCausalLM", lambda s: {**s.rotary, "num_local_experts": 4}, "text",
     "capture")  # fmt: skip
_add("gpt-oss", "GptOssForCausalLM", lambda s: {**s.rotary, "head_dim": 8, "num_local_experts": 4},
     "text", "capture")  # fmt: skip
_add("bert", "BertModel", lambda s: s.text, "text", *_ALL)
_add("bert classifier", "BertForSequenceClassification", lambda s: {**s.text, "num_labels": 3},
     "text", "certify")  # fmt: skip
_add("roberta", "RobertaModel", lambda s: s.text, "text", *_ALL)
_add("electra", "ElectraModel", lambda s: {**s.text, "embedding_size": s.width}, "text", *_ALL)
_add("deberta", "DebertaModel", lambda s: s.text, "text", "capture")
_add("deberta-v2", "DebertaV2Model", lambda s: {**s.text, "relative_attention": True,
     "pos_att_type": ["p2c", "c2p"]}, "text", "capture")  # fmt: skip
_add("mpnet", "MPNetModel", lambda s: s.text, "text", "capture")
_add("distilbert", "DistilBertModel", lambda s: {"vocab_size": s.vocabulary, "dim": s.width,
     "n_layers": 2, "n_heads": 4, "hidden_dim": s.inner}, "text", "capture")  # fmt: skip
_add("albert", "AlbertModel", lambda s: {**s.text, "embedding_size": 16}, "text", "capture")
_add("t5", "T5ForConditionalGeneration", lambda s: s.t5, "pair", *_BOTH)
_add("t5 base", "T5Model", lambda s: s.t5, "pair", "certify")
_add("t5 gated", "T5ForConditionalGeneration",
     lambda s: {**s.t5, "feed_forward_proj": "gated-gelu"}, "pair", "certify")  # fmt: skip
_add("t5 encoder", "T5EncoderModel", lambda s: s.t5, "text", "certify")
_add("marian", "MarianMTModel", lambda s: s.pair, "pair", *_ALL)
_add("marian base", "MarianModel", lambda s: {**s.pair, "scale_embedding": True}, "pair", "certify")
_add("bart", "BartForConditionalGeneration", lambda s: s.pair, "pair", *_ALL)
_add("bart base", "BartModel", lambda s: s.pair, "pair", "certify")
_add("pegasus", "PegasusForConditionalGeneration", lambda s: s.pair, "pair", "capture")
_add("whisper", "WhisperForConditionalGeneration", lambda s: {**s.pair, "max_target_positions": 32,
     "max_source_positions": 10, "num_mel_bins": 8, "suppress_tokens": [],
     "begin_suppress_tokens": []}, "audio pair", "capture")  # fmt: skip
_add("wav2vec2", "Wav2Vec2Model", lambda s: {**s.text, "conv_dim": (16, 16), "conv_stride": (4, 4),
     "conv_kernel": (8, 8), "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
     "num_conv_pos_embedding_groups": 2}, "audio", "capture")  # fmt: skip
_add("vit", "ViTModel", lambda s: s.pixels, "image", *_ALL)
_add("vit classifier", "ViTForImageClassification", lambda s: {**s.pixels, "num_labels": 3},
     "image", "certify")  # fmt: skip
_add("dinov2", "Dinov2Model", lambda s: s.patches, "image", *_BOTH)
_add("dinov2 swiglu", "Dinov2Model", lambda s: {**s.patches, "use_swiglu_ffn": True}, "image",
     "certify")  # fmt: skip
_add("dinov2 classifier", "Dinov2ForImageClassification", lambda s: {**s.patches, "num_labels": 3},
     "image", "certify")  # fmt: skip
_add("swin", "SwinModel", lambda s: {"image_size": s.image, "patch_size": 4, "embed_dim": 16,
     "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}, "image", "capture")  # fmt: skip
_add("xlnet", "XLNetModel", lambda s: {"vocab_size": s.vocabulary, "d_model": s.width, "n_layer": 2,
     "n_head": 4, "d_inner": s.inner}, "text", "capture")  # fmt: skip
_add("longformer", "LongformerModel", lambda s: {**s.text, "attention_window": 4,
     "max_position_embeddings": 40, "pad_token_id": 1}, "long text", "capture")  # fmt: skip
_add("bloom", "BloomModel", lambda s: {"vocab_size": s.vocabulary, "hidden_size": s.width,
     "n_layer": 2, "n_head": 4}, "text", "capture")  # fmt: skip
_add("falcon", "FalconModel", lambda s: {"vocab_size": s.vocabulary, "hidden_size": s.width,
     "num_hidden_layers": 2, "num_attention_heads": 4, "attn_implementation": "eager"}, "text",
     "capture")  # fmt: skip
_add("opt", "OPTModel", lambda s: {"vocab_size": s.vocabulary, "hidden_size": s.width,
     "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": s.inner,
     "max_position_embeddings": 32, "word_embed_proj_dim": s.width}, "text",
     "capture")  # fmt: skip
_add("gpt-neox", "GPTNeoXModel", lambda s: s.text, "text", "capture")
_add("phi", "PhiModel", lambda s: {**s.text, **ENDS}, "text", "capture")
_add("olmo2", "Olmo2Model", lambda s: s.rotary, "text", "capture")
MODELS["clip"] = Model(_clip, "text and image", frozenset({"capture"}))

_add_module("encoder layer", lambda: nn.TransformerEncoderLayer(WIDTH, 4, 24, batch_first=True),
            "tokens")  # fmt: skip
_add_module("encoder layer, norm first", lambda: nn.TransformerEncoderLayer(
            WIDTH, 4, 24, norm_first=True, activation="gelu"), "tokens")  # fmt: skip
_add_module("encoder", lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(
            WIDTH, 2, 24, batch_first=True), 2, norm=nn.LayerNorm(WIDTH)), "tokens")  # fmt: skip
_add_module("decoder layer", lambda: nn.TransformerDecoderLayer(WIDTH, 4, 24, batch_first=True),
            "tokens and context")  # fmt: skip
_add_module("decoder", lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(
            WIDTH, 2, 24, norm_first=True), 2), "tokens and context")  # fmt: skip
_add_module("transformer", lambda: nn.Transformer(WIDTH, 2, 1, 1, 24, batch_first=True),
            "tokens and context")  # fmt: skip
_add_module("multihead", lambda: nn.MultiheadAttention(WIDTH, 4, batch_first=True), "tokens")


def names(test: str) -> list[str]:
    """The models that go through a kind of test: capture, certify or swap."""
    return [name for name, model in MODELS.items() if test in model.tests]


def small(name: str) -> Any:
    """A model at its smallest."""
    return MODELS[name].make(SMALL)


def tiny(name: str) -> tuple[Any, dict[str, Any]]:
    """A model in evaluation mode and inputs of two samples."""
    torch.manual_seed(0)
    model = MODELS[name].make(USUAL)
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
    }[MODELS[name].reads]
    return model.eval(), inputs


def reads_context(name: str) -> bool:
    """Whether a model also reads another sequence."""
    return MODELS[name].reads in ("pair", "tokens and context")


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
    model = small(name).eval().double()
    with torch.no_grad():
        for parameter in model.parameters():
            # norm layers and biases get something random, too: nothing may rest on 1 and 0
            if parameter.ndim == 1:
                parameter.add_(0.2 * torch.randn_like(parameter))
            else:
                parameter.mul_(gain)
    shape = (3, 8, 8) if MODELS[name].reads == "image" else (TOKENS, WIDTH)
    x = scale * torch.randn(batch, *shape, dtype=torch.float64)
    context = scale * torch.randn(batch, CONTEXT, WIDTH, dtype=torch.float64)
    return Case(model, x, context if reads_context(name) else None)


def attentions(output: Any) -> list[Any]:
    """All attention weights that a model gives out when asked."""
    found: list[Any] = []
    for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
        found += [t for t in getattr(output, name, None) or () if t is not None]
    for name in ("text_model_output", "vision_model_output"):
        if getattr(output, name, None) is not None:
            found += attentions(getattr(output, name))
    return found
