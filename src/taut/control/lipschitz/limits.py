"""WeightLimits: the weights of a Lipschitz transformer stay within its budget after every step."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn

from taut._base.bound import Bound
from taut.control.constraint import Constraint
from taut.control.constraints.capped_matrix import cap
from taut.control.lipschitz.embedding import WordEmbedding
from taut.control.lipschitz.transformer import LipschitzTransformer
from taut.control.verified import Verified, singular_values

SHORT = 1 - 1e-6  # of the ball, so that rounding cannot lead out of it


class LimitedWeight(NamedTuple):
    """A matrix of the model and the limit of its singular values."""

    name: str
    parameter: nn.Parameter
    limit: float

    def matrix(self) -> torch.Tensor:
        """The weight as (outputs, inputs); a convolution has one row for each output."""
        return self.parameter.detach().flatten(1)


class WeightLimits(Constraint):
    """Keep a :class:`LipschitzTransformer` within its target while it is trained.

    After every step all maps are brought back to their limits, shares of residuals into [0, 1] and
    embeddings of words into the ball. :meth:`verify` proves all of it, and the whole.

    Parameters
    ----------
    model
        The model.
    method
        As in :func:`cap`, or ``"orthogonal"``: all singular values go to the limit, small ones too.
        Nothing is then lost on the way to the output, which gave images much larger margins.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = LipschitzTransformer.of_text(10, tokens=8, width=16, layers=1, heads=2, target=2.0)
    >>> optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    >>> limits = WeightLimits(model).start(optimizer)
    >>> for _ in range(3):
    ...     ids = torch.randint(0, 10, (4, 8))
    ...     loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    ...     optimizer.zero_grad(); loss.backward(); optimizer.step()
    >>> all(row.holds for row in limits.verify())
    True
    """

    name = "weight_limits"
    model: LipschitzTransformer

    def __init__(self, model: LipschitzTransformer, *, method: str = "soft_cap") -> None:
        super().__init__(model)
        if not isinstance(model, LipschitzTransformer):
            raise TypeError(f"model must be a LipschitzTransformer, got {type(model).__name__}")
        self.method = method
        self._weights = limited_weights(model)
        for weight in self._weights:
            if weight.parameter.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"{weight.name} is kept in {weight.parameter.dtype}, which rounds a limit "
                    "away; keep weights in float32 and compute under autocast"
                )

    def _begin(self) -> None:
        self._after_step()

    @torch.no_grad()
    def _after_step(self) -> None:
        for group in _of_one_shape(self._weights):
            stack = torch.stack([weight.matrix() for weight in group])
            if self.method == "orthogonal":
                capped = cap(_orthogonal(stack, group[0].limit), group[0].limit, method="normalise")
            else:
                capped = cap(stack, group[0].limit, method=self.method)
            if capped is not stack:
                for weight, new in zip(group, capped, strict=True):
                    weight.parameter.copy_(new.view_as(weight.parameter))
        for block in self.model.blocks:
            for share in (block.attention_share, block.mlp_share):
                share.clamp_(0.0, 1.0)
        embedding = self.model.embedding
        if isinstance(embedding, WordEmbedding):
            far = SHORT * self.model.ball.reach
            length = torch.linalg.vector_norm(embedding.weight, dim=1, keepdim=True)
            embedding.weight.mul_((far / length).clamp(max=1.0))

    @torch.no_grad()
    def verify(self) -> list[Verified]:
        """The largest singular value of every map, and the bound of the whole model, proved."""
        self._check_held(self.parameters())
        found = []
        for weight in self._weights:
            largest, _, sigma = singular_values(weight.matrix())
            claim = f"largest singular value at most {weight.limit:g}"
            holds = bool(sigma.upper <= weight.limit)
            found.append(Verified(weight.name, claim, holds, largest, (sigma,)))
        whole: Bound = self.model.certificate()
        claim = f"Lipschitz constant at most {self.model.target:g}"
        upper = float(whole.upper)
        return [*found, Verified("", claim, upper <= self.model.target, upper, (whole,))]

    def parameters(self) -> list[nn.Parameter]:
        """All that it changes."""
        shares = [
            share
            for block in self.model.blocks
            for share in (block.attention_share, block.mlp_share)
        ]
        embedding = self.model.embedding
        words = [embedding.weight] if isinstance(embedding, WordEmbedding) else []
        return [*(weight.parameter for weight in self._weights), *shares, *words]

    def __str__(self) -> str:
        lines = [f"  {weight.name}: at most {weight.limit:g}" for weight in self._weights]
        return "\n".join([f"within {self.model.target:g}, on", *lines])


def limited_weights(model: LipschitzTransformer) -> list[LimitedWeight]:
    """The maps of a model and their limits, which its budget counts on."""
    found = []
    for index, block in enumerate(model.blocks):
        attention, path = block.attention, f"blocks.{index}"
        for name in attention.names:
            found.append(LimitedWeight(f"{path}.attention.{name}", getattr(attention, name), 1.0))
        grow = math.sqrt(block.first.shape[0] / block.first.shape[1])
        found.append(LimitedWeight(f"{path}.first", block.first, grow))
        found.append(LimitedWeight(f"{path}.second", block.second, 1 / grow))
    if not model.text:
        found.append(LimitedWeight("embedding.weight", model.embedding.weight, 1.0))
    if model.head is not None:
        found.append(LimitedWeight("head", model.head, 1.0))
    return [*found, LimitedWeight("output", model.output, 1.0)]


def _orthogonal(stack: torch.Tensor, limit: float) -> torch.Tensor:
    """Singular values σ ↦ σ(3 − σ²)/2 of the limit, thrice: towards 1 (Björck and Bowie 1971).

    A step of training leaves them near 1. Those above √3 would leave, so they are cut before.
    """
    x = cap(stack, 1.5 * limit) / limit
    tall = x if x.shape[1] >= x.shape[2] else x.mT
    for _ in range(3):
        tall = 1.5 * tall - 0.5 * tall @ (tall.mT @ tall)
    return limit * (tall if x.shape[1] >= x.shape[2] else tall.mT)


def _of_one_shape(weights: list[LimitedWeight]) -> list[list[LimitedWeight]]:
    """Weights that can be capped together."""
    groups: dict[tuple[int, int, float], list[LimitedWeight]] = {}
    for weight in weights:
        rows, columns = weight.matrix().shape
        groups.setdefault((rows, columns, weight.limit), []).append(weight)
    return list(groups.values())
