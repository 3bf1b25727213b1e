"""A soft limit on the scores of models of Hugging Face, through their AttentionInterface."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from taut._base.optional import needing
from taut.control.layers.capped import soft_capped
from taut.control.layers.multihead import weighed
from taut.control.layers.swap_hugging_face import CAP

# What some models ask of their attention beyond masks: sinks, selections, caps of their own.
_FOREIGN = ("s_aux", "softcap", "indices", "block_indices")


def check_cappable(model: Any) -> None:
    """Refuse models of transformers that cannot be capped."""
    with needing("capped models need transformers", "hf"):
        from transformers import PreTrainedModel

    for part in (part for part in model.modules() if isinstance(part, PreTrainedModel)):
        if not part._can_set_attn_implementation():
            raise ValueError(
                f"{type(part).__name__} computes attention by itself, not through the "
                "AttentionInterface of transformers: it cannot be capped"
            )
        chosen = str(part.config._attn_implementation)
        if chosen.startswith("taut-") and chosen != CAP:
            raise ValueError(f"the attention of {type(part).__name__} is {chosen} already")
        own = getattr(part.config, "attn_logit_softcapping", None)
        if own is not None:
            raise ValueError(
                f"{type(part).__name__} caps its scores itself, at {own:g}: set "
                "config.attn_logit_softcapping"
            )
    if any(hasattr(module, "sinks") for module in model.modules()):
        raise ValueError(f"{type(model).__name__} has attention sinks: it cannot be capped")


def cap(model: Any, limit: float) -> None:
    """Change the attention function of a model of transformers."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import eager_mask

    AttentionInterface.register(CAP, _attention)
    AttentionMaskInterface.register(CAP, eager_mask)
    model.set_attn_implementation(CAP)
    for module in model.modules():  # parts of a model may have configurations of their own
        config: Any = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            config._attn_implementation = CAP
            config.taut_soft_cap = limit


def limit_of(module: nn.Module) -> float | None:
    """The limit on the scores of an attention module of transformers; None if it has none."""
    config: Any = getattr(module, "config", None)
    capped = getattr(config, "_attn_implementation", None) == CAP
    return float(config.taut_soft_cap) if capped else None


def _attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    position_bias: Tensor | None = None,
    **extra: Any,
) -> tuple[Tensor, Tensor]:
    """Attention on heads (batch, heads, tokens, width), as transformers calls it."""
    foreign = [name for name in _FOREIGN if extra.get(name) is not None]
    if foreign:
        raise ValueError(f"{type(module).__name__} needs {', '.join(foreign)}: it cannot be capped")
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (t.repeat_interleave(groups, dim=1) for t in (key, value))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if position_bias is not None:
        scores = scores + position_bias
    scores, hiding = soft_capped(scores, attention_mask, module.config.taut_soft_cap)
    averages, weights = weighed(scores, value, hiding, dropout=dropout, training=module.training)
    return averages.transpose(1, 2).contiguous(), weights
