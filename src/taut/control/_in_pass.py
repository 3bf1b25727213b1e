"""What penalties share that come from the attention of a training pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from taut.control._attach import Attached
from taut.control._find import Block
from taut.control._seen import Products, Scores, drawn, first_time
from taut.control._watch import Watch


class _Begin:
    """Hook at the beginning of a pass of one model; copies of the model do not have it."""

    def __init__(self, penalty: InPass) -> None:
        self.penalty = penalty

    def __call__(self, *_: Any) -> None:
        self.penalty._begin()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _nothing

    def __reduce__(self) -> Any:
        return _inert, ()


def _inert() -> Any:
    return _nothing


def _nothing(*_: Any) -> None:
    """Stands where a copy would have the hook."""


class InPass:
    """Base of penalties with a term for every attention of the last pass.

    Draws are decided by a seed and the number of the pass, so that a checkpoint of a model computes
    the same anew, if the backward pass comes before the next pass; :meth:`state_dict` keeps that
    number, for a training that goes on later.
    """

    in_loss = True  # whether there is something to add to the loss
    name: str  # in a log, after "penalty/"; may be set to another

    def __init__(self, model: nn.Module, seed: int) -> None:
        self.model = model
        self._seed, self._passes = seed, 0
        self._terms: dict[str, torch.Tensor] = {}
        self._handles: list[Any] = []
        self._attached: list[Attached] = []

    def _listen(self, blocks: Iterable[Block]) -> None:
        """Watch the attention of a model in its training passes, from now on."""
        if self._handles:
            return
        modules = dict(self.model.named_modules())
        chosen = {b.path: modules[b.path] for b in blocks if b.kind == "attention"}
        # Not in training mode alone: models are fine-tuned in evaluation mode too.
        begin = self.model.register_forward_pre_hook(_Begin(self))
        self._handles = [Watch(chosen, self._note, torch.is_grad_enabled), begin]

    def _begin(self) -> None:
        # Neither tests in between nor checkpoints that compute anew change terms and draws.
        if torch.is_grad_enabled() and first_time():
            self._terms.clear()
            self._passes += 1

    def _note(self, seen: Products | Scores) -> None:
        term = self._term(seen, drawn(self._seed, self._passes, seen.path))
        if first_time():
            known = self._terms.get(seen.path)
            self._terms[seen.path] = term if known is None else known + term

    def _term(self, seen: Products | Scores, seed: int) -> torch.Tensor:
        raise NotImplementedError

    def _sum(self) -> torch.Tensor:
        """Of the terms of the last pass."""
        if not self._terms and torch.is_grad_enabled():
            raise RuntimeError(
                "no attention was seen: call penalty() after a forward pass with gradients; "
                "reentrant checkpoints hide it (use use_reentrant=False)"
            )
        return sum(self._terms.values(), self._zero())

    def _zero(self) -> torch.Tensor:
        return torch.zeros((), device=next(self.model.parameters()).device)

    def state_dict(self) -> dict[str, int]:
        """What a training that goes on from a checkpoint needs to draw as this one would."""
        return {"passes": self._passes}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on from there."""
        self._passes = int(state["passes"])

    def bake(self) -> nn.Module:
        """Leave the model as it is now, with nothing of this attached to it."""
        for handle in [*self._handles, *self._attached]:
            handle.remove()
        self._handles.clear()
        self._terms.clear()
        return self.model
