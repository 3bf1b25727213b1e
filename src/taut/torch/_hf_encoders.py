"""Rules for encoders: BERT and its kin, ViT, DINOv2."""

from __future__ import annotations

from typing import Any

import torch

from taut.torch._heads import Heads
from taut.torch._hf import call_block, call_text, named, padded
from taut.torch._mlp import affine
from taut.torch._region import Region
from taut.torch._rules import register
from taut.torch._run import Run

_BERTS = (
    ("bert", "Bert"),
    ("roberta", "Roberta"),
    ("xlm_roberta", "XLMRoberta"),
    ("electra", "Electra"),
)


def _berts(*names: str) -> tuple[str, ...]:
    return tuple(
        n for family, prefix in _BERTS for n in named(family, *(prefix + x for x in names))
    )


def _itself(attention: Any, output: Any) -> Heads:
    """BERT keeps queries, keys and values in one module and the projection in another."""
    return Heads(
        affine(attention.query),
        affine(attention.key),
        affine(attention.value),
        affine(output),
        attention.num_attention_heads,
        attention.num_attention_heads,
        attention.scaling,
    )


def _first(module: Any, x: Any, **inputs: Any) -> Any:
    return call_block(module, x, **inputs)


@register(*_berts("Attention"), call=_first)
def _bert_attention(
    run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.note(None, "", "residual, then norm", ("chain",), 1.0)
    inner, output = module.self, module.output
    run.steady(inner, inner.dropout.p)
    if inner.is_causal:
        raise TypeError("no rule for BERT as a decoder")
    y = run.attention(x, _itself(inner, output.dense), mask=mask, name="self+output.dense")
    y = run(output.dropout, y, "output.dropout")
    return run(output.LayerNorm, run.add(x, y), "output.LayerNorm")


@register(*_berts("Layer"), call=_first)
def _bert_layer(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    x = run(module.attention, x, "attention", mask=mask)
    first, last = module.intermediate, module.output
    y = run.mlp(
        x,
        affine(first.dense),
        first.intermediate_act_fn,
        affine(last.dense),
        "intermediate+output.dense",
    )
    y = run(last.dropout, y, "output.dropout")
    return run(last.LayerNorm, run.add(x, y), "output.LayerNorm")


@register(*_berts("Encoder"), call=_first)
def _bert_encoder(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    for index, layer in enumerate(module.layer):
        x = run(layer, x, f"layer.{index}", mask=mask)
    return x


@register(*_berts("Model"), call=call_text)
def _bert(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    """From word embeddings to the last hidden states."""
    run.note(None, "", "chain", ("chain",), 1.0)
    embeddings = module.embeddings
    if getattr(module, "embeddings_project", None) is not None:
        raise TypeError("no rule for Electra with embeddings of another width")
    offset = 0 if not hasattr(embeddings, "padding_idx") else embeddings.padding_idx + 1
    places = embeddings.position_embeddings.weight[offset : offset + x.tokens]
    x = run.shift(x, places + embeddings.token_type_embeddings.weight[0])
    x = run(embeddings.LayerNorm, x, "embeddings.LayerNorm")
    x = run(embeddings.dropout, x, "embeddings.dropout")
    return run(module.encoder, x, "encoder", mask=padded(None, mask, x.tokens))


@register(*named("bert", "BertForSequenceClassification"), call=call_text)
def _bert_classifier(
    run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None
) -> Region:
    run.note(None, "", "chain", ("chain",), 1.0)
    x = run.first(run(module.bert, x, "bert", mask=mask))
    x = run.linear(x, *affine(module.bert.pooler.dense), "bert.pooler.dense")
    x = run.activation(x, module.bert.pooler.activation, "bert.pooler.activation")
    x = run(module.dropout, x, "dropout")
    return run(module.classifier, x, "classifier")


@register(*named("vit", "ViTAttention"), *named("dinov2", "Dinov2Attention"), call=_first)
def _vit_attention(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.steady(module, module.attention_dropout)
    heads = Heads(
        affine(module.q_proj),
        affine(module.k_proj),
        affine(module.v_proj),
        affine(module.o_proj),
        module.num_attention_heads,
        module.num_attention_heads,
        module.scaling,
    )
    return run.attention(x, heads, mask=mask)


@register(*named("vit", "ViTMLP"), *named("dinov2", "Dinov2MLP"))
def _vit_mlp(run: Run, module: Any, x: Region) -> Region:
    run.note(None, "", "mlp", ("chain",), 1.0)
    return run.mlp(x, affine(module.fc1), module.activation_fn, affine(module.fc2), "fc1+fc2")


@register(*named("vit", "ViTLayer"), call=_first)
def _vit_layer(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "residuals", ("chain",), 1.0)
    run.steady(module.dropout, module.dropout.p)
    y = run(module.layernorm_before, x, "layernorm_before")
    x = run.add(x, run(module.attention, y, "attention", mask=mask))
    y = run(module.layernorm_after, x, "layernorm_after")
    return run.add(x, run(module.mlp, y, "mlp"))


@register(*named("dinov2", "Dinov2LayerScale"))
def _layer_scale(run: Run, module: Any, x: Region) -> Region:
    return run.scale(x, module.lambda1)


@register(*named("dinov2", "Dinov2SwiGLUFFN"))
def _swiglu(run: Run, module: Any, x: Region) -> Region:
    run.note(None, "", "gated mlp", ("chain",), 1.0)
    gate, up, down = module.gate_proj, module.up_proj, module.down_proj
    return run.gated(x, affine(gate), module.act_fn, affine(up), affine(down), "gate*up+down")


@register(*named("dinov2", "Dinov2Layer"), call=_first)
def _dinov2_layer(run: Run, module: Any, x: Region, *, mask: torch.Tensor | None = None) -> Region:
    run.note(None, "", "residuals", ("chain",), 1.0)
    run.steady(module, getattr(module.drop_path, "drop_prob", 0.0))
    y = run(module.attention, run(module.norm1, x, "norm1"), "attention", mask=mask)
    x = run.add(x, run(module.layer_scale1, y, "layer_scale1"))
    y = run(module.mlp, run(module.norm2, x, "norm2"), "mlp")
    return run.add(x, run(module.layer_scale2, y, "layer_scale2"))
