"""SigmaReparametrisation: weights over their largest singular value, times a learnt gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from taut.control.constraint import Constraint, holds_any
from taut.control.verified import Verified, singular_values
from taut.models import Block, Only, chosen_blocks, first_computation


class _Divided(nn.Module):
    """gain·W/σ(W); every training pass follows σ by one step of power iteration."""

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
        # The recomputation of a checkpoint must find what the pass found.
        if self.training and torch.is_grad_enabled() and first_computation():
            with torch.no_grad():
                left = weight @ self.right
                self.left.copy_(left / left.norm())
                right = weight.mT @ self.left
                self.right.copy_(right / right.norm())
        # Copies: a second pass before the backward pass would change them in place.
        sigma = self.left.clone() @ weight @ self.right.clone()
        return weight * (self.gain / sigma)

    def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
        """The parameter that is kept for a weight that is assigned."""
        return weight


class SigmaReparametrisation(Constraint):
    """Learn the largest singular values of weights apart from the rest (Zhai et al. 2023).

    Every matrix W becomes gain·W/σ(W); the model computes the same as before at first. σ is
    followed by power iteration, so that the true largest singular value may exceed the gain a
    little while weights move: :meth:`verify` tells by how much. From :meth:`start` to :meth:`bake`
    the gains are parameters of the model: make the optimiser after the start, and bake before
    ``save_pretrained``. The gains of frozen weights are frozen.

    Parameters
    ----------
    model
        Any model whose attention and feed-forward networks can be found. Fused maps count as one.
        Experts that are kept as one stack of matrices are left as they are.
    tolerance
        By which share the largest singular value may exceed the gain where :meth:`verify` says that
        it holds.
    only, blocks
        As in :class:`Orthogonality`.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> before = model.linear1.weight.detach().clone()
    >>> sigma = SigmaReparametrisation(model).start()
    >>> torch.allclose(model.linear1.weight, before, atol=1e-6)
    True
    >>> sorted(sigma.bake().state_dict()) == sorted(
    ...     torch.nn.TransformerEncoderLayer(8, 2, 16).state_dict()
    ... )
    True
    """

    name = "sigma_reparametrisation"

    def __init__(
        self,
        model: nn.Module,
        *,
        tolerance: float = 0.01,
        only: Only = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        super().__init__(model)
        if not 0 <= tolerance < math.inf:
            raise ValueError(f"tolerance must be a number of at least 0, got {tolerance!r}")
        self.tolerance = tolerance
        found = chosen_blocks(model, only, blocks)
        weights = [weight for block in found for weight in block.weights.values()]
        names = dict.fromkeys(weight.name for weight in weights if weight.expert is None)
        if not names:
            raise ValueError("only stacks of experts were found, which cannot have gains")
        self._orders: dict[nn.Module, list[str]] = {}
        self._places = [(model.get_submodule(n.rpartition(".")[0]), n) for n in names]
        self._check_weights()

    def _check_weights(self) -> None:
        for module, name in self._plain():
            weight = getattr(module, _attribute(name))
            if not bool(torch.isfinite(weight).all()):
                raise ValueError(f"{name} holds NaN or infinite numbers")
            if not bool(weight.any()):
                raise ValueError(f"{name} is zero and cannot be divided by its norm")

    def _check(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        super()._check(optimizers)
        gains = [] if self._plain() else [divided.gain for _, divided in self._divided()]
        trained = [gain for gain in gains if gain.requires_grad]
        held = all(any(holds_any(o, [gain]) for o in optimizers) for gain in trained)
        if optimizers and not (gains and held):
            raise ValueError(
                "the optimiser does not hold the gains: call start() before it is made, then "
                "start(optimizer) if you like"
            )

    def _begin(self) -> None:
        self._check_weights()  # all, before anything is changed
        for module, name in self._plain():
            self._orders.setdefault(module, list(module._parameters))
            weight = getattr(module, _attribute(name))
            parametrize.register_parametrization(module, _attribute(name), _Divided(weight))

    def gains(self) -> dict[str, float]:
        """The gain of every matrix: what its largest singular value is meant to be."""
        return {name: abs(float(divided.gain.detach())) for name, divided in self._divided()}

    @torch.no_grad()
    def verify(self) -> list[Verified]:
        """Singular values by SVD; whether the largest is the gain, up to the tolerance."""
        wanted = self.gains()
        found = []
        for module, name in self._places:
            largest, _, sigma = singular_values(getattr(module, _attribute(name)))
            limit = wanted[name] * (1 + self.tolerance)
            claim = f"largest singular value at most the gain {wanted[name]:g}, to a tolerance"
            found.append(Verified(name, claim, sigma.upper <= limit, largest, (sigma,)))
        return found

    def _fold(self) -> None:
        for module, name in self._places:
            if parametrize.is_parametrized(module, _attribute(name)):
                parametrize.remove_parametrizations(
                    module, _attribute(name), leave_parametrized=True
                )
        for module, order in self._orders.items():  # as they were: optimisers go by the order
            for name in order:
                module._parameters[name] = module._parameters.pop(name)
        self._orders.clear()

    def _plain(self) -> list[tuple[nn.Module, str]]:
        """The places that have no gain."""
        return [
            (module, name)
            for module, name in self._places
            if not parametrize.is_parametrized(module, _attribute(name))
        ]

    def _divided(self) -> list[tuple[str, Any]]:
        if self._plain():
            raise RuntimeError("there are no gains: they come with start() and are baked by bake()")
        found = []
        for module, name in self._places:
            held: Any = module.parametrizations
            found.append((name, held[_attribute(name)][0]))
        return found

    def __str__(self) -> str:
        return "\n".join(["a gain for each of", *(f"  {name}" for _, name in self._places)])


def _attribute(name: str) -> str:
    """The last part of the name of a parameter."""
    return name.rpartition(".")[2]
