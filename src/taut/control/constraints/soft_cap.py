"""SoftCap: a smooth limit on the scores of all attention in a model."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from taut._base.checks import positive_in_range
from taut._base.norm import lp
from taut._base.upper_bound import bounded_above
from taut.control.constraint import Constraint
from taut.control.layers.capped import CappedAttention
from taut.control.layers.capped_hugging_face import cap, check_cappable, limit_of
from taut.control.layers.swap import put, replacements
from taut.control.layers.swap_hugging_face import pretrained
from taut.control.verified import ALL, Verified
from taut.models import AttentionListener, Products, Scores, largest_scores

SCORE = "largest score"


class SoftCap(Constraint):
    """Turn the scores s of every attention into limit·tanh(s/limit), as in Gemma 2.

    The limit is a part of the model from :meth:`start` on, in training and after it; :meth:`stop`
    and :meth:`bake` leave it there. Weights and their names stay as they were. Every
    ``nn.MultiheadAttention`` becomes a :class:`CappedAttention` with the same parameters; models of
    transformers change their attention function (``"taut-soft-cap"`` of its AttentionInterface) and
    keep the limit in ``config.taut_soft_cap``.

    Parameters
    ----------
    model
        The model, which :meth:`start` changes in place. After ``from_pretrained`` start a new one
        of these: weights and limit are in the files, the attention function is not.
    limit
        Largest absolute value of a score. If not given, what the configuration says, or 50.

    Notes
    -----
    Scores are computed in the open, so that fused kernels are not used. Position biases count as
    part of the scores.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> soft = SoftCap(model, limit=0.125).start()
    >>> soft.verify()[0].certificates[0]
    Bound(largest score at most 0.125, linf, all inputs; )
    >>> print(*soft.measure(torch.randn(4, 5, 8)))
    self_attn: scores at most 0.125 in this pass: yes (0.12...)
    """

    name = "soft_cap"

    def __init__(self, model: nn.Module, *, limit: float | None = None) -> None:
        super().__init__(model)
        self._parts = [part for _, part in pretrained(model)]
        kept = [getattr(part.config, "taut_soft_cap", None) for part in self._parts]
        known = [number for number in kept if number is not None]
        known += [layer.limit for layer in self._layers().values()]
        if limit is None:
            limit = known[0] if known else 50.0
        self.limit = positive_in_range(limit, name="limit")
        ours = (nn.MultiheadAttention, CappedAttention)
        if not self._parts and not any(isinstance(module, ours) for module in model.modules()):
            raise ValueError(
                "no attention to cap: neither nn.MultiheadAttention nor a model of transformers "
                f"is in this {type(model).__name__}"
            )
        for part in self._parts:
            check_cappable(part)

    def _begin(self) -> None:
        """Put the limit into the model; nothing is changed if this fails."""
        made = replacements(self.model, CappedAttention, {"limit": self.limit})
        there = self._layers()
        for part in self._parts:
            check_cappable(part)
        for part in self._parts:
            cap(part, self.limit)
        put(self.model, made)
        for layer in there.values():
            layer.limit = self.limit

    def _layers(self) -> dict[str, CappedAttention]:
        modules = self.model.named_modules()
        return {name: module for name, module in modules if isinstance(module, CappedAttention)}

    def verify(self) -> list[Verified]:
        """The limit of every attention, as it is built in.

        The layers of taut prove it for all inputs. In models of transformers the attention function
        is checked, and that they call it is left to :meth:`measure`.
        """
        claim = f"scores at most {self.limit:g}"
        layers = self._layers()
        found = []
        for name, module in self.model.named_modules():
            if name in layers:
                limit = layers[name].limit
                proof = bounded_above(limit, lp(math.inf), ALL, (), rounding="proved")._replace(
                    quantity=SCORE
                )
                found.append(Verified(name, claim, limit <= self.limit, limit, (proof,)))
            elif _attends(module) and hasattr(module, "config"):
                limit = limit_of(module) or math.inf
                found.append(Verified(name, claim, limit <= self.limit, limit))
        return found

    @torch.no_grad()
    def measure(self, *args: Any, **kwargs: Any) -> list[Verified]:
        """The largest scores in a pass of the model on these inputs."""
        attention = {name: m for name, m in self.model.named_modules() if _attends(m)}
        found: dict[str, float] = {}
        listener = AttentionListener(attention, lambda seen: _note(found, seen), lambda: True)
        try:
            self.model(*args, **kwargs)
        finally:
            listener.remove()
        claim = f"scores at most {self.limit:g} in this pass"
        rows = ((name, found[name]) for name in attention if name in found)
        return [Verified(name, claim, most <= self.limit, most) for name, most in rows]

    def __str__(self) -> str:
        return f"scores at most {self.limit:g}, in the whole model"


def _attends(module: nn.Module) -> bool:
    return isinstance(module, CappedAttention) or type(module).__name__.endswith("Attention")


def _note(found: dict[str, float], seen: Products | Scores) -> None:
    heads = largest_scores(seen, absolute=True)  # of a kernel, without the limit
    if heads.numel():
        most = float(heads.amax())  # NaN stays: max() could lose it
        known = found.get(seen.path, 0.0)
        found[seen.path] = most if not known >= most else known
