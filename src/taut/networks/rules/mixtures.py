"""Rules for the mixtures of experts of Mixtral, Qwen2-MoE, Qwen3-MoE and OLMoE."""

from __future__ import annotations

from typing import Any

import torch

from taut.models import architecture, expert_maps
from taut.networks.interpreter import Interpreter
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.described import linear_affine

_OLMOE = "transformers.models.olmoe.modeling_olmoe.OlmoeSparseMoeBlock"


@register(*architecture("llama").named("SparseMoeBlock"), _OLMOE, call=lambda module, x: module(x))
def _mixture(run: Interpreter, module: Any, x: Region) -> Region:
    run.explain("experts", "chain")
    run.steady(module, getattr(module, "jitter_noise", 0.0))
    maps = expert_maps(module.experts)

    def expert(tokens: Region, index: int) -> Region:
        gate, first, second = (
            linear_affine(maps[index][role]) for role in ("gate", "first", "second")
        )
        return run.gated(tokens, gate, module.experts.act_fn, first, second, f"experts.{index}")

    router = module.gate
    y = run.mixture(
        x, router.weight, expert, top=router.top_k, name="gate",
        among_chosen=getattr(router, "norm_topk_prob", True),
    )  # fmt: skip
    shared = getattr(module, "shared_expert", None)
    return y if shared is None else run.add(y, _shared(run, module, x))


def _shared(run: Interpreter, module: Any, x: Region) -> Region:
    """σ(⟨w, x⟩)·E(x), a mixture of an expert and nothing, to which all tokens are sent."""
    weight = module.shared_expert_gate.weight
    router = torch.cat((weight, torch.zeros_like(weight)))

    def either(tokens: Region, index: int) -> Region:
        if index == 1:
            return run.scale(tokens, 0.0, "nothing")
        return run(module.shared_expert, tokens, "shared_expert")

    return run.mixture(x, router, either, top=2, name="shared_expert_gate")
