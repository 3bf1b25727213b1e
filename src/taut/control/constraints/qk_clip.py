"""QKClip: after a step, scale down the query and key maps of heads whose scores grew too large."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn

from taut.control.constraint import Constraint
from taut.control.layers.cosine import CosineAttention
from taut.control.verified import Verified
from taut.models import (
    HIDDEN,
    AttentionListener,
    Block,
    Only,
    Products,
    Scores,
    chosen_blocks,
    controlled_attention,
    query_key_norms,
)


class QKClip(Constraint):
    """Keep the largest score of every head at a limit.

    In passes with gradients the largest product of a query and a key, scaled as in the model, is
    noted for every head. After a step the query and key maps of a head above the limit are each
    multiplied by the root of limit/largest; where heads share their keys, the query map alone is
    multiplied by limit/largest. Heads whose scores are all below the limit, or negative, are left
    alone. Where a model computes its scores in the open, biases count as a part of them.

    Parameters
    ----------
    model
        Any model whose attention can be found, without norms on queries and keys, which would undo
        the scaling.
    limit
        Largest score that is wanted; 100 is a common choice.
    only, blocks
        As in :class:`Orthogonality`.

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
        only: Only = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        if not 0 < limit < math.inf:
            raise ValueError(f"limit must be a number above 0, got {limit!r}")
        super().__init__(model)
        self.limit = limit
        found = chosen_blocks(model, only, blocks)
        self._blocks = {b.path: b for b in found if {"query", "key"} <= set(b.weights)}
        if not self._blocks:
            raise ValueError("no attention with query and key maps of its own was found")
        for path in self._blocks:
            normed = _norms(model.get_submodule(path))
            if normed:
                raise ValueError(f"{path} normalises queries and keys ({', '.join(normed)})")
        self._largest: dict[str, torch.Tensor] = {}  # since the last step
        self._listener: AttentionListener | None = None

    def _begin(self) -> None:
        if self._listener is None:
            modules = {path: self.model.get_submodule(path) for path in self._blocks}
            self._listener = AttentionListener(modules, self._note, torch.is_grad_enabled)

    def _end(self) -> None:
        if self._listener is not None:
            self._listener.remove()
            self._listener = None

    @torch.no_grad()
    def _note(self, seen: Products | Scores) -> None:
        if isinstance(seen, Scores):
            shown = seen.scores.masked_fill(seen.scores < HIDDEN, -torch.inf)
            most = shown.amax(dim=(0, 2, 3))
        else:
            heads = zip(seen.query.unbind(1), seen.key.unbind(1), strict=True)
            most = torch.stack([(q @ k.mT).mul_(seen.factor).amax() for q, k in heads])
        known = self._largest.get(seen.path)
        self._largest[seen.path] = most if known is None else torch.maximum(known, most)

    @torch.no_grad()
    def _after_step(self) -> None:
        for path, largest in self._shared().items():
            block = self._blocks[path]
            if not bool((largest < torch.inf).all()):  # nor NaN; a head that saw nothing has -inf
                raise ValueError(f"scores of {path} are NaN or infinite")
            share = torch.where(
                largest > self.limit, self.limit / largest, torch.ones_like(largest)
            )
            if bool((share == 1).all()):
                continue
            query, key = block.weights["query"], block.weights["key"]
            grouped = query.matrix().shape[0] != key.matrix().shape[0]
            pairs = [(query, share)] if grouped else [(query, share.sqrt()), (key, share.sqrt())]
            for weight, by in pairs:
                rows = by.repeat_interleave(weight.matrix().shape[0] // len(by))
                weight.scale_rows(rows)
        self._largest.clear()

    def _shared(self) -> dict[str, torch.Tensor]:
        """The largest scores; layers that share their maps count as one, and are scaled once."""
        found: dict[tuple[int, ...], tuple[str, torch.Tensor]] = {}
        for path, largest in self._largest.items():
            block = self._blocks[path]
            key = tuple(id(block.weights[role].parameter) for role in ("query", "key"))
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
        maps = [block.weights[role] for block in self._blocks.values() for role in ("query", "key")]
        return [weight.parameter for weight in maps]

    def __str__(self) -> str:
        return "\n".join([f"scores at most {self.limit:g}, on", *(f"  {p}" for p in self._blocks)])


def _norms(module: nn.Module) -> list[str]:
    """What normalises the queries and keys of an attention module."""
    found = controlled_attention(module)
    if isinstance(module, CosineAttention) or (found is not None and found.kind == "cosine"):
        return ["cosine attention"]
    return query_key_norms(module)
