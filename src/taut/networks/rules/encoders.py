"""Rules for encoders: BERT, RoBERTa, XLM-RoBERTa, ELECTRA, ViT, DINOv2."""

from __future__ import annotations

from typing import Any

import torch

from taut.models import architecture
from taut.networks.interpreter import Interpreter
from taut.networks.operations.linear import affine
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.described import bound_attention, bound_layer
from taut.networks.rules.hugging_face import call_block, call_text, named, padded

BERT, VIT, DINOV2 = (architecture(name) for name in ("bert", "vit", "dinov2"))


@register(*BERT.named("Attention"), call=call_block)
def _bert_attention(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.explain("residual, then norm", "chain")
    inner, output = module.self, module.output
    if inner.is_causal:
        raise TypeError("no rule for BERT as a decoder")
    y = bound_attention(run, inner, x, mask=mask, parent=module, name="self+output.dense")
    y = run(output.dropout, y, "output.dropout")
    return run(output.LayerNorm, run.add(x, y), "output.LayerNorm")


register(*BERT.named("Layer"), call=call_block)(bound_layer)


@register(*BERT.named("Encoder"), call=call_block)
def _bert_encoder(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.explain("chain", "chain")
    for index, layer in enumerate(module.layer):
        x = run(layer, x, f"layer.{index}", mask=mask)
    return x


@register(*BERT.named("Model"), call=call_text)
def _bert(run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    """From word embeddings to the last hidden states."""
    run.explain("chain", "chain")
    embeddings = module.embeddings
    if getattr(module, "embeddings_project", None) is not None:
        raise TypeError("no rule for Electra with embeddings of another width")
    offset = 0 if not hasattr(embeddings, "padding_idx") else embeddings.padding_idx + 1
    places = embeddings.position_embeddings.weight[offset : offset + x.tokens]
    kind = run.tensor(embeddings.token_type_embeddings.weight[0])
    x = run.shift(x, run.tensor(places) + kind)  # a sum in float64
    x = run(embeddings.LayerNorm, x, "embeddings.LayerNorm")
    x = run(embeddings.dropout, x, "embeddings.dropout")
    return run(module.encoder, x, "encoder", mask=padded(None, mask, x.tokens))


@register(*named("bert", "BertForSequenceClassification"), call=call_text)
def _bert_classifier(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.explain("chain", "chain")
    x = run.first(run(module.bert, x, "bert", mask=mask))
    x = run.linear(x, *affine(module.bert.pooler.dense), "bert.pooler.dense")
    x = run.activation(x, module.bert.pooler.activation, "bert.pooler.activation")
    x = run(module.dropout, x, "dropout")
    return run(module.classifier, x, "classifier")


@register(*VIT.named("Attention"), *DINOV2.named("Attention"), call=call_block)
def _vit_attention(
    run: Interpreter, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    return bound_attention(run, module, x, mask=mask)


register(*VIT.named("Layer"), *DINOV2.named("Layer"), call=call_block)(bound_layer)


@register(*DINOV2.named("LayerScale"))
def _layer_scale(run: Interpreter, module: Any, x: Region) -> Region:
    return run.scale(x, module.lambda1)
