"""What constraints share that change the weights after a step and add nothing to the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from taut.control._attach import Attached, check


class AfterStep:
    """Base of projections and clips: they have ``apply``, and list the parameters they change."""

    in_loss = False  # whether there is something to add to the loss

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self._attached: list[Attached] = []

    def apply(self) -> Any:
        """Change the weights now."""
        raise NotImplementedError

    def parameters(self) -> list[nn.Parameter]:
        """What it may change."""
        raise NotImplementedError

    def penalty(self) -> torch.Tensor:
        """Nothing is added to the loss."""
        return torch.zeros((), device=next(self.model.parameters()).device)

    def attach(self, optimizer: torch.optim.Optimizer) -> Attached:
        """Do it now and after every step of an optimiser; a handle with ``remove()``."""
        check(optimizer, self.parameters())
        self.apply()
        handle = optimizer.register_step_post_hook(lambda *_: self.apply() and None)
        return Attached(handle, self._attached)

    def bake(self) -> nn.Module:
        """The model with plain weights, and nothing attached to it or to its optimisers."""
        for handle in list(self._attached):
            handle.remove()
        return self.model
