"""PassPenalty: what penalties share that come from the attention of a training pass."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from taut.control.constraint import Constraint
from taut.models import AttentionListener, Block, Products, Scores, draw_seed, first_computation


class PassPenalty(Constraint):
    """A constraint whose penalty has a term for every attention of the last training pass.

    Random draws are decided by a seed and the number of the pass. So a checkpoint that recomputes
    the pass draws the same, provided that the backward pass comes before the next pass.
    :meth:`state_dict` keeps the number, for a training that is resumed.

    A subclass implements ``_term``, and lists the ``blocks`` that it listens to.
    """

    has_penalty = True

    def __init__(self, model: nn.Module, blocks: Sequence[Block], seed: int) -> None:
        super().__init__(model)
        self.blocks = list(blocks)
        self._seed, self._passes = seed, 0
        self._terms: dict[str, torch.Tensor] = {}
        self._handles: list[Any] = []

    @abstractmethod
    def _term(self, seen: Products | Scores, seed: int) -> torch.Tensor:
        """The term of one attention."""

    def _begin(self) -> None:
        if self._handles:
            return
        modules = dict(self.model.named_modules())
        chosen = {b.path: modules[b.path] for b in self.blocks if b.kind == "attention"}
        # Not in training mode alone: models are fine-tuned in evaluation mode too.
        hook = self.model.register_forward_pre_hook(_PassBegins(self))
        self._handles = [AttentionListener(chosen, self._note, torch.is_grad_enabled), hook]

    def _end(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._terms = {path: term.detach() for path, term in self._terms.items()}

    def _pass_begins(self) -> None:
        # Neither evaluation in between nor the recomputation of a checkpoint counts.
        if torch.is_grad_enabled() and first_computation():
            self._forget()
            self._passes += 1

    def _forget(self) -> None:
        """Forget the last pass."""
        self._terms.clear()

    def _note(self, seen: Products | Scores) -> None:
        term = self._term(seen, draw_seed(self._seed, self._passes, seen.path))
        if first_computation():
            known = self._terms.get(seen.path)
            self._terms[seen.path] = term if known is None else known + term

    def _sum(self) -> torch.Tensor:
        """The terms of the last pass, added up."""
        if not self._terms and torch.is_grad_enabled():
            raise RuntimeError(
                "no attention was seen: call penalty() after a forward pass with gradients; "
                "reentrant checkpoints hide it (use use_reentrant=False)"
            )
        return sum(self._terms.values(), self._zero())

    def state_dict(self) -> dict[str, int]:
        """The number of training passes so far, on which random draws depend."""
        return {"passes": self._passes}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Resume after so many training passes."""
        self._passes = int(state["passes"])


class _PassBegins:
    """Hook at the beginning of a pass of one model; copies of the model do not have it."""

    def __init__(self, constraint: PassPenalty) -> None:
        self.constraint = constraint

    def __call__(self, *_: Any) -> None:
        self.constraint._pass_begins()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _nothing

    def __reduce__(self) -> Any:
        return _inert, ()


def _inert() -> Any:
    return _nothing


def _nothing(*_: Any) -> None:
    """Stands where a copy would have the hook."""
