"""A penalty on the exact local constants of attention's softmaxes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from taut._lipschitz import local_lipschitz
from taut.audit._reduce import HIDDEN
from taut.control._find import Block, Only, chosen_blocks
from taut.control._in_pass import InPass
from taut.control._seen import Products, Scores, first_time


class LocalConstant(InPass):
    """Pull the sensitivity of attention rows below a limit.

    In every training pass some rows of each attention are drawn, and the squares of what their
    exact constants in l2 exceed the limit by are averaged over rows and summed over layers.

    Parameters
    ----------
    model
        Any model whose attention can be found.
    limit
        Constant that costs nothing, from 0 to ½.
    strength
        By which the penalty is multiplied.
    rows
        How many rows of every head and sample are drawn.
    seed
        Of the draws.
    only, blocks
        As in :func:`constrain`.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> sharp = LocalConstant(model, limit=0.1, strength=1.0)
    >>> _ = model(torch.randn(2, 5, 8))
    >>> sharp.penalty().backward()
    >>> bool(model.self_attn.in_proj_weight.grad.abs().sum() > 0)
    True
    """

    name = "local_constant"

    def __init__(
        self,
        model: nn.Module,
        *,
        limit: float = 0.25,
        strength: float = 1.0,
        rows: int = 8,
        seed: int = 0,
        only: Only = None,
        blocks: Sequence[Block] | None = None,
    ) -> None:
        if not 0 <= limit < 0.5:
            raise ValueError(f"limit must be a number from 0 to below 1/2, got {limit!r}")
        if not 0 <= strength < math.inf:
            raise ValueError(f"strength must be a number of at least 0, got {strength!r}")
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows!r}")
        super().__init__(model, seed)
        self.limit, self.strength, self.rows = limit, strength, rows
        self._blocks = chosen_blocks(model, only, blocks)
        self._constants: dict[str, torch.Tensor] = {}
        self.apply()

    def apply(self) -> LocalConstant:
        """Begin to watch attention."""
        self._listen(self._blocks)
        return self

    def _begin(self) -> None:
        if torch.is_grad_enabled() and first_time():
            self._constants.clear()
        super()._begin()

    def _term(self, seen: Products | Scores, seed: int) -> torch.Tensor:
        scores, real = self._drawn_rows(seen, seed)
        constants: torch.Tensor = local_lipschitz(scores).value
        if real is not None:  # rows of padding do not count
            constants = constants[real.expand(constants.shape)]
        if first_time():
            known = self._constants.get(seen.path, constants.new_zeros(0))
            self._constants[seen.path] = torch.cat([known, constants.detach().flatten()])
        costs = (constants - self.limit).clamp(min=0.0).square()
        return costs.mean() if len(costs) else costs.sum()

    def _drawn_rows(
        self, seen: Products | Scores, seed: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scores of the rows that are drawn, the same in every sample and head; which are real.

        Where a sequence attends to itself, a token that nobody sees is padding, as a query too.
        """
        if isinstance(seen, Scores):
            queries, keys = seen.scores.shape[2:]
        else:
            queries, keys = seen.query.shape[2], seen.key.shape[2]
        count = min(self.rows, queries)
        source = np.random.default_rng(seed)
        rows = torch.from_numpy(np.sort(source.choice(queries, count, replace=False)))
        own = seen.own and queries == keys
        if isinstance(seen, Scores):
            shown = (seen.scores.detach() > HIDDEN).any(dim=-2)
            return seen.scores[:, :, rows], shown[..., rows] if own else None
        real = None
        found = seen.query[:, :, rows] @ seen.key.mT * seen.factor
        if seen.bias is not None:
            bias = seen.bias.expand(-1, -1, queries, keys)
            found = found + bias[:, :, rows]
            real = (bias.detach() > HIDDEN).any(dim=-2)[..., rows] if own else None
        if seen.causal:
            found = found.masked_fill(rows[:, None] < torch.arange(keys), -torch.inf)
        return found, real

    def penalty(self) -> torch.Tensor:
        """What to add to the loss, from the last training pass."""
        return self.strength * self._sum()

    def values(self) -> dict[str, float]:
        """The mean constants of the rows drawn in the last pass, by layer, for a log."""
        return {path: float(found.mean()) for path, found in self._constants.items()}

    def verify(self) -> dict[str, float]:
        """The largest constants of the rows drawn in the last pass: measured, no bound."""
        return {path: float(found.max()) for path, found in self._constants.items()}

    def __str__(self) -> str:
        paths = [block.path for block in self._blocks if block.kind == "attention"]
        head = f"local constants above {self.limit:g} cost, strength {self.strength:g}, on"
        return "\n".join([head, *(f"  {path}" for path in paths)])
