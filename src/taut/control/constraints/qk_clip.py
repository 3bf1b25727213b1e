"""QKClip: after a step, scale down the query and key maps of heads whose scores grew too large."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from taut._base.checks import real_number
from taut.control.constraint import Constraint
from taut.control.constraints.clipped_heads import ClippedMaps, clipped_block, clipped_latent
from taut.control.layers.cosine import CosineAttention
from taut.control.verified import Verified
from taut.models import (
    AttentionListener,
    Block,
    Only,
    Products,
    Scores,
    chosen_blocks,
    controlled_attention,
    find_latent_attention,
    largest_scores,
    query_key_norms,
)


class QKClip(Constraint):
    """Keep the largest score of every head at a limit.

    In passes with gradients the largest product of a query and a key that it sees, scaled as in the
    model, is noted for every head, in blocks of queries: fused attention stays fused, and no n × n
    matrix is kept. After a step the maps of a head above the limit are multiplied so that its
    scores become limit/largest times what they were: the query map by the power alpha of that
    factor, the key map by the rest. Where heads share their keys, the query map takes all of it; in
    multi-head latent attention (DeepSeek-V2 and V3, Kimi K2) only the rotary part of the query map
    does, for only its key is shared. Heads whose scores are all below the limit, or negative, are
    left alone. Where a model computes its scores in the open, biases count as a part of them.

    Parameters
    ----------
    model
        Any model whose attention can be found, without norms on queries and keys, which would undo
        the scaling.
    limit
        Largest score that is wanted; 100 is a common choice. Megatron calls it
        ``qk_clip_threshold``.
    alpha
        Share of the exponent that queries take, from 0 to 1. Megatron calls it ``qk_clip_alpha``.
    only, blocks
        As in :class:`Orthogonality`. Blocks that are passed hold no latent attention.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> clip = QKClip(model, limit=0.1).start()
    >>> x = torch.randn(4, 5, 8)
    >>> _ = model(x)
    >>> clip.after_step()
    >>> _ = model(x)
    >>> all(row.holds for row in clip.verify())
    True
    """

    name = "qk_clip"

    def __init__(
        self,
        model: nn.Module,
        *,
        limit: float = 100.0,
        alpha: float = 0.5,
        only: Only = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        if not 0 < real_number(limit, name="limit") < math.inf:
            raise ValueError(f"limit must be a number above 0, got {limit!r}")
        if not 0 <= real_number(alpha, name="alpha") <= 1:
            raise ValueError(f"alpha must be a number from 0 to 1, got {alpha!r}")
        super().__init__(model)
        self.limit, self.alpha = limit, alpha
        self._maps = _found(model, alpha, only, blocks)
        if not self._maps:
            raise ValueError("no attention with query and key maps of its own was found")
        for path in self._maps:
            normed = _norms(model.get_submodule(path))
            if normed:
                raise ValueError(f"{path} normalises queries and keys ({', '.join(normed)})")
        self._largest: dict[str, torch.Tensor] = {}  # since the last step
        self._listener: AttentionListener | None = None

    def _begin(self) -> None:
        if self._listener is None:
            modules = {path: self.model.get_submodule(path) for path in self._maps}
            self._listener = AttentionListener(modules, self._note, torch.is_grad_enabled)

    def _end(self) -> None:
        if self._listener is not None:
            self._listener.remove()
            self._listener = None

    @torch.no_grad()
    def _note(self, seen: Products | Scores) -> None:
        most = largest_scores(seen)
        known = self._largest.get(seen.path)
        self._largest[seen.path] = most if known is None else torch.maximum(known, most)

    @torch.no_grad()
    def _after_step(self) -> None:
        for path, largest in self._shared().items():
            if not bool((largest < torch.inf).all()):  # nor NaN; a head that saw nothing has -inf
                raise ValueError(f"scores of {path} are NaN or infinite")
            share = torch.where(
                largest > self.limit, self.limit / largest, torch.ones_like(largest)
            )
            if bool((share < 1).any()):
                self._maps[path].scale(share)
        self._largest.clear()

    def _shared(self) -> dict[str, torch.Tensor]:
        """The largest scores; layers that share their maps count as one, and are scaled once."""
        found: dict[tuple[int, ...], tuple[str, torch.Tensor]] = {}
        for path, largest in self._largest.items():
            key = tuple(id(weight.parameter) for weight in self._maps[path].weights)
            first, known = found.get(key, (path, largest))
            found[key] = first, torch.maximum(known, largest)
        return dict(found.values())

    def verify(self) -> list[Verified]:
        """The largest scores of all heads in the passes since the last step, as measured."""
        if not self._largest:
            raise RuntimeError("no attention was seen since the last step: run a pass first")
        slack = self.limit * (1 + 1e-4)
        claim = f"scores at most {self.limit:g} in the passes since the last step"
        return [
            Verified(path, claim, float(value) <= slack, float(value), head=head)
            for path, largest in self._largest.items()
            for head, value in enumerate(largest)
        ]

    def parameters(self) -> list[nn.Parameter]:
        """The query and key maps."""
        return [weight.parameter for maps in self._maps.values() for weight in maps.weights]

    def __str__(self) -> str:
        return "\n".join([f"scores at most {self.limit:g}, on", *(f"  {p}" for p in self._maps)])


def _found(
    model: nn.Module, alpha: float, only: Only, blocks: Sequence[Block] | None
) -> dict[str, ClippedMaps]:
    """The maps of every attention, by its path."""
    latent = find_latent_attention(model, only) if blocks is None else []
    try:
        plain = chosen_blocks(model, only, blocks)
    except ValueError:
        if not latent:
            raise
        plain = []
    found = {b.path: clipped_block(b, alpha) for b in plain if {"query", "key"} <= set(b.weights)}
    return found | {each.path: clipped_latent(each, alpha) for each in latent}


def _norms(module: nn.Module) -> list[str]:
    """What normalises the queries and keys of an attention module."""
    found = controlled_attention(module)
    if isinstance(module, CosineAttention) or (found is not None and found.kind == "cosine"):
        return ["cosine attention"]
    return query_key_norms(module)
