"""What constraints share that change the weights after a step and add nothing to the loss."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class AfterStep:
    """Base of projections and clips: they have ``apply`` and a ``model``."""

    in_loss = False  # whether there is something to add to the loss
    model: nn.Module

    def apply(self) -> Any:
        """Change the weights now."""
        raise NotImplementedError

    def penalty(self) -> torch.Tensor:
        """Nothing is added to the loss."""
        return torch.zeros((), device=next(self.model.parameters()).device)

    def attach(self, optimizer: torch.optim.Optimizer) -> Any:
        """Do it after every step of an optimiser; a handle with ``remove()``."""

        def after(*_: Any) -> None:
            self.apply()

        return optimizer.register_step_post_hook(after)
