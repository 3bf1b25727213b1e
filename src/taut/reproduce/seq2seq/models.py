"""Encoder-decoder transformers of the sizes of Zhang et al. 2021, built by transformers."""

from __future__ import annotations

from typing import Any, NamedTuple

from taut.reproduce.seq2seq.needed_packages import for_training
from taut.reproduce.seq2seq.subwords import END, PAD


class Size(NamedTuple):
    """Layers, width, feed-forward width, heads and dropout of encoder and decoder."""

    layers: int
    width: int
    forward: int
    heads: int
    dropout: float


SIZES = {
    "tiny": Size(2, 128, 256, 4, 0.1),
    "small": Size(2, 256, 1024, 4, 0.1),  # as transformer_small, base and big of Tensor2Tensor
    "base": Size(6, 512, 2048, 8, 0.1),
    "big": Size(6, 1024, 4096, 16, 0.3),
}
FAMILIES = ("marian", "bart")


def build(size: str, pieces: int, *, longest: int, family: str = "marian", seed: int = 0) -> Any:
    """A new model.

    Parameters
    ----------
    size
        One of ``SIZES``.
    pieces
        Size of the vocabulary, shared by both sides and the output.
    longest
        Pieces of a text at most.
    family
        ``"marian"`` (positions by sines, as Vaswani et al. 2017) or ``"bart"`` (positions learnt).
    seed
        Seed of the weights.
    """
    with for_training():
        import torch
        from transformers import (
            BartConfig,
            BartForConditionalGeneration,
            MarianConfig,
            MarianMTModel,
        )

    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(SIZES)}, got {size!r}")
    if family not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {family!r}")
    chosen = SIZES[size]
    settings: dict[str, Any] = {
        "vocab_size": pieces, "d_model": chosen.width, "max_position_embeddings": longest,
        "encoder_layers": chosen.layers, "decoder_layers": chosen.layers,
        "encoder_ffn_dim": chosen.forward, "decoder_ffn_dim": chosen.forward,
        "encoder_attention_heads": chosen.heads, "decoder_attention_heads": chosen.heads,
        "dropout": chosen.dropout, "attention_dropout": 0.0, "activation_dropout": 0.0,
        "activation_function": "relu", "scale_embedding": True,
        "pad_token_id": PAD, "bos_token_id": END, "eos_token_id": END, "forced_eos_token_id": END,
        "decoder_start_token_id": PAD,
    }  # fmt: skip
    torch.manual_seed(seed)
    if family == "bart":
        return BartForConditionalGeneration(BartConfig(**settings))
    return MarianMTModel(MarianConfig(**settings))
