"""Attention modules: at given tokens, near to them, and for all tokens of bounded length."""

from __future__ import annotations

import math

import numpy as np
import torch

from taut.torch._ball import ball
from taut.torch._frame import Frame
from taut.torch._heads import Heads, Norms, Part, norms
from taut.torch._near import near
from taut.torch._numbers import Numbers, plus, times
from taut.torch._projection import Rotary
from taut.torch._region import Region
from taut.torch._spectral import largest, length


class AttentionMaps(Frame):
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
            Tokens that queries are made of, and keys and values; the same if there is no context.
        heads
            The weights.
        mask
            True where a query (row) sees a key (column), (queries, keys) or with a batch in front.
        bias
            Fixed term of the scores, (heads, queries, keys).
        rotary
            Cosines and sines of rotary positions.
        name
            In the tree, if the attention is a part of a module.
        """
        y = x if context is None else context
        self.fits(x, heads.query[0].shape[1], "attention")
        self.fits(y, heads.key[0].shape[1], "attention, in its keys and values,")
        known = norms(heads)
        given = (self, x, y, heads, known, mask, bias, rotary)
        if x.centre is None or y.centre is None:
            part, output = ball(*given), None
        else:
            part, output = near(*given)
            if not self.dry and (x.radius.any() or y.radius.any()):
                part = _smaller(part, ball(*given))
        query, other = times(known.output, part.query), times(known.output, part.context)
        rule = "for tokens of bounded length" if output is None else "covariances under the weights"
        self.note(name, "attention", rule, ("attn-core", "spectral"), plus(query, other))
        size = times(known.output, part.longest)
        if heads.output is not None:
            size = plus(size, length(heads.output[1]))
        radius = plus(times(x.radius, query), times(y.radius, other))
        return x.but(
            width=heads.outputs,
            lip=plus(times(x.lip, query), times(y.lip, other)),
            err=plus(
                times(x.err, query), times(y.err, other), _lost(self, x, y, heads, known, part)
            ),
        ).placed(output, radius, size)


def _smaller(near_by: Part, anywhere: Part) -> Part:
    """Both bounds hold; the second is the smaller one far from the given tokens."""
    return Part(
        np.minimum(near_by.query, anywhere.query),
        np.minimum(near_by.context, anywhere.context),
        np.minimum(near_by.longest, anywhere.longest),
    )


def _lost(run: Frame, x: Region, y: Region, heads: Heads, known: Norms, part: Part) -> Numbers:
    """Rounding: scores (which move weights by twice their error), mean values, projection."""
    q = plus(times(known.query_size, x.length), known.query_biases.max())
    k = plus(times(known.key_size, y.length), known.key_biases.max())
    for norm, size in ((heads.query_norm, q), (heads.key_norm, k)):
        if norm is not None:
            np.minimum(size, largest(norm.gain) * math.sqrt(heads.width), out=size)
    value = times(known.output, part.longest)
    scores = times(4 * heads.scale, q, k, value)
    return plus(
        run.rounding(x, scores, x.width + heads.width + 8),
        run.rounding(x, value, y.tokens + y.width + 8),
        run.rounding(x, times(known.output_size, part.longest), heads.heads * heads.width + 1),
    )
