"""What the rules for encoder-decoder models share: how to call their parts, and the whole."""

from __future__ import annotations

from typing import Any

import torch

from taut.torch._heads import Heads
from taut.torch._hf import additive, named, sees
from taut.torch._mlp import affine
from taut.torch._region import Region
from taut.torch._rules import register
from taut.torch._run import Run


def projections(module: Any, names: tuple[str, str, str, str], heads: int, scale: float) -> Heads:
    query, key, value, output = (affine(getattr(module, name)) for name in names)
    return Heads(query, key, value, output, heads, heads, scale)


def call_context(
    module: Any, x: Any, *, context: Any = None, mask: Any = None, context_mask: Any = None
) -> Any:
    """A decoder's block or stack, or an encoder's."""
    given: dict[str, Any] = {}
    if context is not None:
        given["encoder_hidden_states"] = context
        if context_mask is not None:
            given["encoder_attention_mask"] = additive(context_mask, x)
    decodes = getattr(module, "is_decoder", context is not None)
    seen = sees(x.shape[1], causal=decodes) if mask is None else mask
    return module(x, attention_mask=None if seen is None else additive(seen, x), **given)


def call_attention(module: Any, x: Any, *, context: Any = None, mask: Any = None) -> Any:
    name = "mask" if hasattr(module, "n_heads") else "attention_mask"
    fixed = None if mask is None else additive(mask, x)
    return module(x, key_value_states=context, **{name: fixed})


def call_stack(
    module: Any, x: Any, *, context: Any = None, mask: Any = None, context_mask: Any = None
) -> Any:
    given: dict[str, Any] = {"inputs_embeds": x}
    if mask is not None:
        given["attention_mask"] = mask.to(x.device).long()
    if context is not None:
        given["encoder_hidden_states"] = context
    if context_mask is not None:
        given["encoder_attention_mask"] = context_mask.to(x.device).long()
    return module(**given)


def call_pair(
    module: Any, x: Any, *, context: Any, mask: Any = None, context_mask: Any = None
) -> Any:
    """An encoder-decoder model: tokens go into the decoder, the context into the encoder."""
    given: dict[str, Any] = {"inputs_embeds": context, "decoder_inputs_embeds": x}
    if mask is not None:
        given["decoder_attention_mask"] = mask.to(x.device).long()
    if context_mask is not None:
        given["attention_mask"] = context_mask.to(x.device).long()
    return module(**given)


@register(
    *named("t5", "T5Model"), *named("marian", "MarianModel"), *named("bart", "BartModel"),
    call=call_pair,
)  # fmt: skip
def _pair(
    run: Run,
    module: Any,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    run.note(None, "", "encoder into decoder", ("chain",), 1.0)
    memory = run(module.encoder, context, "encoder", mask=context_mask)
    return run(module.decoder, x, "decoder", context=memory, mask=mask, context_mask=context_mask)
