"""QK-clip: after a step, scale down the query and key maps of heads whose scores grew too large."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import nn

from taut.audit._reduce import HIDDEN
from taut.control._after_step import AfterStep
from taut.control._cosine import CosineAttention
from taut.control._find import Block, Only, chosen_blocks
from taut.control._seen import Products, Scores
from taut.control._watch import Watch

_NORMS = re.compile(r"(q|k|query|key)_?(layer_?|rms_?)?(norm|ln)")


def _implementation(module: nn.Module) -> str:
    return str(getattr(getattr(module, "config", None), "_attn_implementation", ""))


class Clipped(NamedTuple):
    """A head, its largest score in the last pass, and what a limit on it needs."""

    name: str
    head: int
    largest: float
    holds: bool


class QKClip(AfterStep):
    """Keep the largest score of every head at a limit.

    In passes with gradients the largest product of a query and a key, scaled as the model does, is
    noted for every head. After a step the query and key maps of a head above the limit are
    multiplied with the root of limit/largest each; where heads share their keys, the query map
    alone, with all of it. Heads whose scores are all below the limit, negative ones too, are left
    alone. Where a model writes its scores out, what biases add to them counts as well.

    Parameters
    ----------
    model
        Any model whose attention can be found, without norms on queries and keys, which would undo
        it.
    limit
        Largest score that is wanted; about 100 in use elsewhere.
    only, blocks
        As in :func:`constrain`.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> clip = QKClip(model, limit=0.1)
    >>> x = torch.randn(4, 5, 8)
    >>> _ = model(x)
    >>> _ = clip.apply()
    >>> _ = model(x)
    >>> all(row.holds for row in clip.verify())
    True
    """

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
        modules = dict(model.named_modules())
        found = chosen_blocks(model, only, blocks)
        self._blocks = {b.path: b for b in found if {"query", "key"} <= set(b.weights)}
        if not self._blocks:
            raise ValueError("no attention with query and key maps of its own was found")
        for path in self._blocks:
            module = modules[path]
            normed = [name for name, _ in module.named_children() if _NORMS.fullmatch(name)]
            if isinstance(module, CosineAttention) or _implementation(module) == "taut-cosine":
                normed = ["cosine attention"]
            if normed:
                raise ValueError(f"{path} normalises queries and keys ({', '.join(normed)})")
        self._largest: dict[str, torch.Tensor] = {}
        chosen = {path: modules[path] for path in self._blocks}
        self._watch = Watch(chosen, self._note, torch.is_grad_enabled)

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
    def apply(self) -> QKClip:
        """Scale the maps of heads that passed the limit since the last time."""
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
        return self

    def _shared(self) -> dict[str, torch.Tensor]:
        """The largest scores; layers that share their maps count as one, and are scaled once."""
        found: dict[tuple[int, ...], tuple[str, torch.Tensor]] = {}
        for path, largest in self._largest.items():
            block = self._blocks[path]
            key = tuple(id(block.weights[role].parameter) for role in ("query", "key"))
            first, known = found.get(key, (path, largest))
            found[key] = first, torch.maximum(known, largest)
        return dict(found.values())

    def verify(self) -> list[Clipped]:
        """The largest scores of all heads in the passes since the last step, against the limit."""
        if not self._largest:
            raise RuntimeError("no attention was seen since the last step: run a pass first")
        slack = self.limit * (1 + 1e-4)
        return [
            Clipped(path, head, float(value), float(value) <= slack)
            for path, largest in self._largest.items()
            for head, value in enumerate(largest)
        ]

    def parameters(self) -> list[nn.Parameter]:
        """What it may change."""
        maps = [block.weights[role] for block in self._blocks.values() for role in ("query", "key")]
        return [weight.parameter for weight in maps]

    def bake(self) -> nn.Module:
        """The model with plain weights, and nothing attached to it or to its optimisers."""
        self._watch.remove()
        self._largest.clear()
        return super().bake()

    def __str__(self) -> str:
        return "\n".join([f"scores at most {self.limit:g}, on", *(f"  {p}" for p in self._blocks)])
