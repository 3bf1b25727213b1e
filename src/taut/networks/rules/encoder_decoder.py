"""How to call encoder-decoder models and their parts, and the rule for the whole."""

from __future__ import annotations

from typing import Any

import torch

from taut.networks.interpreter import Interpreter
from taut.networks.region import Region
from taut.networks.rule_register import register
from taut.networks.rules.hugging_face import named, sees, transformers_mask


def call_context(
    module: Any, x: Any, *, context: Any = None, mask: Any = None, context_mask: Any = None
) -> Any:
    """Call a layer of a decoder or an encoder."""
    given: dict[str, Any] = {}
    if context is not None:
        given["encoder_hidden_states"] = context
        if context_mask is not None:
            given["encoder_attention_mask"] = transformers_mask(context_mask, x)
    decodes = getattr(module, "is_decoder", context is not None)
    seen = sees(x.shape[1], causal=decodes) if mask is None else mask
    return module(x, attention_mask=None if seen is None else transformers_mask(seen, x), **given)


def call_attention(module: Any, x: Any, *, context: Any = None, mask: Any = None) -> Any:
    """Call an attention module, on its own sequence or on a context."""
    name = "mask" if hasattr(module, "n_heads") else "attention_mask"
    fixed = None if mask is None else transformers_mask(mask, x)
    return module(x, key_value_states=context, **{name: fixed})


def call_stack(
    module: Any, x: Any, *, context: Any = None, mask: Any = None, context_mask: Any = None
) -> Any:
    """Call a stack of layers on embedded tokens."""
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
    """Call an encoder-decoder model: the decoder reads x, the encoder the context."""
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
    run: Interpreter,
    module: Any,
    x: Region,
    *,
    context: Region,
    mask: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
) -> Region:
    run.explain("encoder into decoder", "chain")
    memory = run(module.encoder, context, "encoder", mask=context_mask)
    return run(module.decoder, x, "decoder", context=memory, mask=mask, context_mask=context_mask)
