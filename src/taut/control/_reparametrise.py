"""σ-reparametrisation: weights over their largest singular value, times a gain that is learnt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from taut.control._find import Block, Only, chosen_blocks
from taut.control._projection import Sigma
from taut.control._seen import first_time


class _Divided(nn.Module):
    """gain·W/σ(W), with σ followed by one step of power iteration a training pass."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        left, values, right = torch.linalg.svd(weight.detach().double(), full_matrices=False)
        self.gain = nn.Parameter(values[0].to(weight.dtype), requires_grad=weight.requires_grad)
        self.left: torch.Tensor
        self.right: torch.Tensor
        self.register_buffer("left", left[:, 0].to(weight.dtype))
        self.register_buffer("right", right[0].to(weight.dtype))

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        """The weight that the model computes with."""
        # A checkpoint that computes anew must find what the pass found.
        if self.training and torch.is_grad_enabled() and first_time():
            with torch.no_grad():
                left = weight @ self.right
                self.left.copy_(left / left.norm())
                right = weight.mT @ self.left
                self.right.copy_(right / right.norm())
        # Copies: a second pass before the backward pass would change them in place.
        sigma = self.left.clone() @ weight @ self.right.clone()
        return weight * (self.gain / sigma)

    def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
        """What is kept for a weight that is assigned."""
        return weight


class SigmaReparametrisation:
    """Learn the largest singular values of weights apart from the rest (Zhai et al. 2023).

    Every matrix W becomes gain·W/σ(W). The model computes the same as before at first. σ is
    followed by power iteration, so that the true largest singular value may exceed the gain a
    little while weights move: ``verify()`` tells by how much. :meth:`bake` leaves plain weights.
    Until then the gains are parameters of the model: make the optimiser after them, and bake before
    ``save_pretrained``. Frozen weights get gains that are frozen.

    Parameters
    ----------
    model
        Any model whose attention and feed-forward networks can be found. Fused maps count as one.
    only, blocks
        As in :func:`constrain`.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> before = model.linear1.weight.detach().clone()
    >>> sigma = SigmaReparametrisation(model)
    >>> torch.allclose(model.linear1.weight, before, atol=1e-6)
    True
    >>> sorted(sigma.bake().state_dict()) == sorted(
    ...     torch.nn.TransformerEncoderLayer(8, 2, 16).state_dict()
    ... )
    True
    """

    in_loss = False  # whether there is something to add to the loss

    def __init__(
        self,
        model: nn.Module,
        *,
        only: Only = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        self.model = model
        found = chosen_blocks(model, only, blocks)
        names = dict.fromkeys(weight.name for block in found for weight in block.weights.values())
        self._orders: dict[nn.Module, list[str]] = {}
        self._places = [(model.get_submodule(n.rpartition(".")[0]), n) for n in names]
        self.apply()

    def apply(self) -> SigmaReparametrisation:
        """Put the gains in; what has them already is left alone."""
        for module, name in self._places:
            attribute = name.rpartition(".")[2]
            if not parametrize.is_parametrized(module, attribute):
                weight = getattr(module, attribute)
                if not bool(torch.isfinite(weight).all()):
                    raise ValueError(f"{name} holds NaN or infinite numbers")
                if not bool(weight.any()):
                    raise ValueError(f"{name} is zero and cannot be divided by its norm")
                self._orders.setdefault(module, list(module._parameters))
                parametrize.register_parametrization(module, attribute, _Divided(weight))
        return self

    def penalty(self) -> torch.Tensor:
        """Nothing is added to the loss."""
        return torch.zeros((), device=next(self.model.parameters()).device)

    def gains(self) -> dict[str, float]:
        """The gain of every matrix: what its largest singular value is meant to be."""
        return {name: abs(float(inner.gain.detach())) for name, inner in self._inner()}

    @torch.no_grad()
    def verify(self, tolerance: float = 0.01) -> list[Sigma]:
        """Singular values by a decomposition; whether the largest is the gain, to a tolerance."""
        wanted = self.gains()
        found = []
        for module, name in self._places:
            values = torch.linalg.svdvals(getattr(module, name.rpartition(".")[2]).double())
            large = float(values[0])
            holds = large <= wanted[name] * (1 + tolerance)
            found.append(Sigma(name, large, float(values[-1]), holds))
        return found

    def bake(self) -> nn.Module:
        """The model with plain weights, those that it computes with now."""
        for module, name in self._places:
            attribute = name.rpartition(".")[2]
            if parametrize.is_parametrized(module, attribute):
                parametrize.remove_parametrizations(module, attribute, leave_parametrized=True)
        for module, order in self._orders.items():  # as they were: optimisers go by the order
            for name in order:
                module._parameters[name] = module._parameters.pop(name)
        self._orders.clear()
        return self.model

    def _inner(self) -> list[tuple[str, Any]]:
        found = []
        for module, name in self._places:
            held: Any = getattr(module, "parametrizations", None)
            if held is None:
                raise RuntimeError("the gains were baked into the weights: there are none any more")
            found.append((name, held[name.rpartition(".")[2]][0]))
        return found
