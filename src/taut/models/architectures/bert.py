"""BERT, RoBERTa, XLM-RoBERTa, ELECTRA: the output map of attention is in a module beside it."""

from __future__ import annotations

from dataclasses import replace

from taut.models.architectures.description import (
    Architecture,
    AttentionDescription,
    Branch,
    FeedForwardDescription,
    LayerDescription,
    hugging_face,
)

MODELS = (
    ("bert", "Bert"),
    ("roberta", "Roberta"),
    ("xlm_roberta", "XLMRoberta"),
    ("electra", "Electra"),
)

_ITSELF = AttentionDescription(
    classes=hugging_face(MODELS, "SelfAttention"),
    query="query",
    key="key",
    value="value",
    output="..output.dense",
    heads="num_attention_heads",
    scale="scaling",
    dropouts=("dropout.p",),
    replaceable=True,
)

BERT = Architecture(
    "bert",
    MODELS,
    attention=(
        _ITSELF,
        replace(_ITSELF, classes=hugging_face(MODELS, "CrossAttention"), always_cross=True),
    ),
    feed_forward=(
        FeedForwardDescription(
            classes=hugging_face(MODELS, "Layer"),
            first="intermediate.dense",
            second="output.dense",
            activation="intermediate.intermediate_act_fn",
        ),
    ),
    layers=(
        LayerDescription(
            classes=hugging_face(MODELS, "Layer"),
            branches=(
                Branch("attention", kind="self", residual=False),  # it adds its input itself
                Branch("", "output.LayerNorm", then=("output.dropout",)),
            ),
            norm_first=False,
        ),
    ),
)
