"""LocalConstant: a penalty on the exact local constants of attention's softmaxes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from taut import local_lipschitz
from taut._base.bound import Bound
from taut.control.constraints.pass_penalty import PassPenalty
from taut.control.verified import Verified
from taut.models import HIDDEN, Block, Only, Products, Scores, chosen_blocks, first_computation


class LocalConstant(PassPenalty):
    """Pull the sensitivity of attention rows below a limit.

    In every training pass some rows of each attention are drawn. The penalty is the square of what
    their exact constants in l2 exceed the limit by, averaged over rows and summed over layers.

    Parameters
    ----------
    model
        Any model whose attention can be found.
    limit
        Largest constant without a penalty, from 0 to below ½.
    strength
        Factor of the penalty.
    rows
        Number of rows that are drawn of every head and sample.
    seed
        Seed of the draws.
    only, blocks
        As in :class:`Orthogonality`.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> sharp = LocalConstant(model, limit=0.1, strength=1.0).start()
    >>> _ = model(torch.randn(2, 5, 8))
    >>> sharp.penalty().backward()
    >>> bool(model.self_attn.in_proj_weight.grad.abs().sum() > 0)
    True
    >>> sharp.verify()[0].certificates[0]
    Bound(exact ..., l2, the 20 rows drawn in the last pass; local-2)
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
        super().__init__(model, chosen_blocks(model, only, blocks), seed)
        self.limit, self.strength, self.rows = limit, strength, rows
        self._constants: dict[str, list[Bound]] = {}  # of the rows drawn in the last pass

    def _forget(self) -> None:
        super()._forget()
        self._constants.clear()

    def _term(self, seen: Products | Scores, seed: int) -> torch.Tensor:
        scores, real = self._drawn_rows(seen, seed)
        bound = local_lipschitz(scores)
        if real is not None:  # rows of padding do not count
            bound = bound[real.expand(bound.shape)]
        if first_computation() and bound.value.numel():
            self._constants.setdefault(seen.path, []).append(_detached(bound))
        costs: torch.Tensor = (bound.value - self.limit).clamp(min=0.0).square()
        return costs.mean() if len(costs) else costs.sum()

    def _drawn_rows(
        self, seen: Products | Scores, seed: int
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Scores of the drawn rows, the same in every sample and head, and which are not padding.

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

    def _penalty(self) -> torch.Tensor:
        return self.strength * self._sum()

    def values(self) -> dict[str, float]:
        """The mean constants of the rows drawn in the last pass, by layer."""
        return {
            path: float(torch.cat([bound.value.flatten() for bound in found]).mean())
            for path, found in self._constants.items()
        }

    def verify(self) -> list[Verified]:
        """The largest constants of the rows drawn in the last pass; nothing is known of others."""
        claim = f"local constants of the drawn rows at most {self.limit:g}"
        found = []
        for path, bounds in self._constants.items():
            count = sum(bound.value.numel() for bound in bounds)
            most = max((bound.max() for bound in bounds), key=lambda bound: float(bound.upper))
            most = most._replace(
                lower=float(most.lower), upper=float(most.upper), estimate=float(most.value),
                domain=f"the {count} rows drawn in the last pass",
            )  # fmt: skip
            found.append(Verified(path, claim, most.upper <= self.limit, float(most), (most,)))
        return found

    def __str__(self) -> str:
        paths = [block.path for block in self.blocks if block.kind == "attention"]
        head = f"local constants above {self.limit:g} cost, strength {self.strength:g}, on"
        return "\n".join([head, *(f"  {path}" for path in paths)])


def _detached(bound: Bound) -> Bound:
    sides = {"lower": bound.lower, "upper": bound.upper, "estimate": bound.value}
    return bound._replace(**{name: side.detach() for name, side in sides.items()})
