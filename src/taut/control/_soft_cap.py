"""Soft-cap: a smooth limit on the scores of all attention in a model."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from taut._optional import needing
from taut.attention._inputs import positive
from taut.audit._reduce import HIDDEN
from taut.control._capped import CappedAttention, capped
from taut.control._multihead import weighed
from taut.control._seen import Products, Scores
from taut.control._swap import put, replacements
from taut.control._swap_hf import CAP, pretrained
from taut.control._watch import Watch

# What some models ask of their attention beyond masks: sinks, selections, caps of their own.
_FOREIGN = ("s_aux", "softcap", "indices", "block_indices")


class Capped(NamedTuple):
    """An attention, the largest size of a score in the last passes, and whether it is within."""

    name: str
    largest: float
    holds: bool


class SoftCap:
    """Scores s of every attention become limit·tanh(s/limit), as in Gemma 2.

    It is a part of the model from then on, in training and after it: weights are as they were, and
    so are their names. Every ``nn.MultiheadAttention`` becomes a :class:`CappedAttention` with the
    same parameters; models of transformers change their attention function (``"taut-soft-cap"`` of
    its AttentionInterface) and keep the limit in ``config.taut_soft_cap``.

    Parameters
    ----------
    model
        The model, changed in place. After ``from_pretrained`` make a new one of these: weights and
        limit are in the files, the attention function is not.
    limit
        No score is larger, none smaller than its negative. If not given, what the configuration
        says, or 50.

    Notes
    -----
    Scores are formed, so that fused kernels are not used. Position biases count as part of the
    scores.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> cap = SoftCap(model, limit=0.1)
    >>> cap.verify(torch.randn(4, 5, 8))
    [Capped(name='self_attn', largest=0.09..., holds=True)]
    """

    in_loss = False  # whether there is something to add to the loss

    def __init__(self, model: nn.Module, *, limit: float | None = None) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        self.model = model
        self._parts = [part for _, part in pretrained(model)]
        kept = [getattr(part.config, "taut_soft_cap", None) for part in self._parts]
        known = [number for number in kept if number is not None]
        known += [m.limit for m in model.modules() if isinstance(m, CappedAttention)]
        if limit is None:
            limit = known[0] if known else 50.0
        self.limit = positive(limit, name="limit")
        self.apply()

    def apply(self) -> SoftCap:
        """Put the limit into the model, where it is not; nothing is changed if this fails."""
        made = replacements(self.model, CappedAttention, {"limit": self.limit})
        there = [m for m in self.model.modules() if isinstance(m, CappedAttention)]
        if not (made or there or self._parts):
            raise ValueError(
                "no attention to cap: neither nn.MultiheadAttention nor a model of transformers "
                f"is in this {type(self.model).__name__}"
            )
        for part in self._parts:
            _check(part)
        for part in self._parts:
            _set(part, self.limit)
        put(self.model, made)
        for module in there:
            module.limit = self.limit
        return self

    def penalty(self) -> Tensor:
        """Nothing is added to the loss."""
        return torch.zeros((), device=next(self.model.parameters()).device)

    @torch.no_grad()
    def verify(self, *args: Any, **kwargs: Any) -> list[Capped]:
        """The largest scores in a pass of the model on this input: measured, beside the limit."""
        attention = {name: m for name, m in self.model.named_modules() if _attends(m)}
        found: dict[str, float] = {}
        watch = Watch(attention, lambda seen: _note(found, seen), lambda: True)
        try:
            self.model(*args, **kwargs)
        finally:
            watch.remove()
        rows = ((name, found[name]) for name in attention if name in found)
        return [Capped(name, most, most <= self.limit) for name, most in rows]

    def bake(self) -> nn.Module:
        """The model: its weights are plain already, and the limit is a part of it."""
        return self.model

    def __str__(self) -> str:
        return f"scores at most {self.limit:g}, in the whole model"


def _attends(module: nn.Module) -> bool:
    return isinstance(module, CappedAttention) or type(module).__name__.endswith("Attention")


def _note(found: dict[str, float], seen: Products | Scores) -> None:
    if isinstance(seen, Products):  # a kernel, without the limit
        scores = seen.query @ seen.key.mT * seen.factor
    else:
        scores = seen.scores.masked_fill(seen.scores < HIDDEN, 0.0)
    if scores.numel():
        most = float(scores.abs().amax())  # NaN stays: max() could lose it
        known = found.get(seen.path, 0.0)
        found[seen.path] = most if not known >= most else known


def _check(model: Any) -> None:
    """Refuse models of transformers that cannot be capped, before any is changed."""
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


def _set(model: Any, limit: float) -> None:
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
    scores, hiding = capped(scores, attention_mask, module.config.taut_soft_cap)
    averages, weights = weighed(scores, value, hiding, dropout=dropout, training=module.training)
    return averages.transpose(1, 2).contiguous(), weights
