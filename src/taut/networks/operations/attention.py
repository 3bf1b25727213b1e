"""Attention modules: at given tokens, near to them, and for all tokens of bounded length."""

from __future__ import annotations

import numpy as np
import torch

from taut._base.rounding import plus, times
from taut.networks.operations.attention_in_tokens import attention_in_tokens
from taut.networks.operations.attention_mask import visible
from taut.networks.operations.attention_near_input import attention_near_input
from taut.networks.operations.attention_on_ball import attention_on_ball
from taut.networks.operations.attention_parameters import (
    AttentionConstants,
    AttentionInputs,
    Heads,
    Rotary,
    norms_of_heads,
)
from taut.networks.operations.attention_rounding import attention_rounding
from taut.networks.operations.setting import Setting
from taut.networks.region import Region
from taut.networks.weight_norms import length


class AttentionOperations(Setting):
    """Multi-head attention."""

    def attention(
        self,
        x: Region,
        heads: Heads,
        *,
        context: Region | None = None,
        mask: torch.Tensor | None = None,
        bias: torch.Tensor | None = None,
        rotary: Rotary | None = None,
        name: str | None = None,
    ) -> Region:
        """Dot-product attention (theorem attn-core).

        Parameters
        ----------
        x, context
            Tokens of the queries, and of keys and values; without a context they are the same.
        heads
            The weights.
        mask
            True where a query (row) sees a key (column), (queries, keys), with a batch in front, or
            with a batch and heads. Sizes of 1 stand for all queries, keys, samples or heads.
        bias
            Fixed term of the scores, (heads, queries, keys).
        rotary
            Cosines and sines of rotary positions.
        name
            Name in the tree, if the attention is only a part of its module.
        """
        y = x if context is None else context
        self.fits(x, heads.query[0].shape[1], "attention")
        self.fits(y, heads.key[0].shape[1], "attention, in its keys and values,")
        norms = norms_of_heads(heads)
        if mask is not None:
            shape = (len(x.length), heads.heads, x.tokens, y.tokens)
            mask = visible(mask.to(self.device), shape)
        given = AttentionInputs(x, y, heads, norms, mask, bias, rotary)
        if x.centre is None or y.centre is None:
            part, output = attention_on_ball(self, given), None
        else:
            part, output = attention_near_input(self, given)
            if not self.dry and (_is_wide(x) or _is_wide(y)):
                part = _smaller(part, attention_on_ball(self, given))
        query, other = times(norms.output, part.query), times(norms.output, part.context)
        size = times(norms.output, part.longest)
        if heads.output is not None:
            size = plus(size, length(heads.output[1]))
        theorems = ["attn-core", "spectral"]
        if self.norm == "token" and not self.dry and (output is None or _is_wide(x) or _is_wide(y)):
            joined = attention_in_tokens(given)
            if joined is not None:
                query, other = np.minimum(query, joined.query), np.minimum(other, joined.context)
                size = np.minimum(size, joined.longest)
                theorems.append("attn-heads-token")
        rule = "for tokens of bounded length" if output is None else "covariances under the weights"
        self.leaf(name, "attention", plus(query, other), rule, *theorems)
        rounding = attention_rounding(self, given, part)
        return x.but(
            width=heads.outputs,
            lip=plus(times(x.lip, query), times(y.lip, other)),
            err=plus(times(x.err, query), times(y.err, other), rounding.executed),
            drift=rounding.after(plus(times(x.drift, query), times(y.drift, other)), size),
        ).placed(output, plus(times(x.radius, query), times(y.radius, other)), size)


def _is_wide(x: Region) -> bool:
    """Whether a region is more than its centre and some rounding."""
    return bool(x.radius.any() or (x.drift > 1e-6 * x.length).any())


def _smaller(near_by: AttentionConstants, anywhere: AttentionConstants) -> AttentionConstants:
    """Both bounds hold; the second is the smaller one far from the given tokens."""
    return AttentionConstants(*(np.minimum(*both) for both in zip(near_by, anywhere, strict=True)))
