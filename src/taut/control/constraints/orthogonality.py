"""Orthogonality: the penalties of Zhang et al. 2021 on any transformer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from taut._base.checks import whole_number
from taut.control.constraints.affinity_penalty import affinity_penalty
from taut.control.constraints.gram_penalty import (
    GramPenalty,
    gradient_factors,
    gram_penalty,
    without_autocast,
)
from taut.control.constraints.pass_penalty import PassPenalty
from taut.control.constraints.weight_groups import JOINS, Group, stacked_matrices, weight_groups
from taut.control.verified import Verified, orthogonality_certificate, singular_values
from taut.models import Block, Only, Products, Scores, chosen_blocks

if TYPE_CHECKING:
    from typing_extensions import Self  # in typing from Python 3.11 on

PRESETS = {"VAR-I": ("AM",), "VAR-II": ("AM", "LA"), "VAR-III": ("AM", "LA", "LF")}
KINDS = {"AM": "attention", "LA": "attention", "LF": "feed-forward"}  # what the parts are about


class Orthogonality(PassPenalty):
    """Pull linear maps and attention matrices towards orthogonality (Zhang et al. 2021).

    The penalty of a matrix A is ‖AᵀA − I‖²_F. AM is the sum over attention matrices in the last
    training pass, LA over the linear maps of attention, and LF over those of feed-forward networks.

    Parameters
    ----------
    model
        Any model whose attention and feed-forward networks can be found
        (:func:`taut.control.find_blocks`).
    parts
        ``"VAR-I"`` (AM), ``"VAR-II"`` (AM and LA), ``"VAR-III"`` (all), or a list of ``"AM"``,
        ``"LA"`` and ``"LF"``.
    strength
        Factor λ of the penalty, at least 0. Zhang et al. 2021 try 1e-6, 1e-8 and 1e-10.
    join
        How the query, key, value and output maps of a layer are put together, which the paper does
        not say: ``"stack"`` puts them below each other, with the width of the model in the columns;
        ``"beside"`` is the transpose, whose penalty is larger by a constant; ``"each"`` takes them
        one by one.
    only
        A pattern of the paths of blocks, such as ``"encoder.*"``, or several. Print what
        :func:`find_blocks` gives to see the paths.
    blocks
        The blocks themselves, instead of those that are found.
    probes
        Number of random directions from which AM is estimated, without bias; 0 computes it exactly.
    seed
        Seed of the random directions.
    before_step
        Leave LA and LF out of the loss, and add their gradients before every step of the optimisers
        that :meth:`start` is given. This costs one pass a step, however many passes are
        accumulated, and comes after gradient clipping and unscaling.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> constraint = Orthogonality(model, "VAR-III", strength=1e-3).start()
    >>> loss = model(torch.randn(2, 5, 8)).square().mean() + constraint.penalty()
    >>> loss.backward()
    >>> sorted(constraint.values())
    ['AM', 'LA', 'LF']
    """

    name = "orthogonality"

    def __init__(
        self,
        model: nn.Module,
        parts: str | Sequence[str] = "VAR-III",
        *,
        strength: float = 1e-8,
        join: str = "stack",
        only: Only = None,
        blocks: Sequence[Block] | None = None,
        probes: int = 0,
        seed: int = 0,
        before_step: bool = False,
    ) -> None:
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
        chosen = PRESETS.get(parts, (parts,)) if isinstance(parts, str) else tuple(parts)
        if not chosen or not set(chosen) <= set(KINDS):
            known = ", ".join([*PRESETS, *KINDS])
            raise ValueError(f"parts must be one of {known}, or a list of parts, got {parts!r}")
        if not isinstance(strength, (int, float)) or not 0 <= strength < math.inf:
            raise ValueError(f"strength must be a number of at least 0, got {strength!r}")
        if join not in JOINS:
            raise ValueError(f"join must be one of {', '.join(JOINS)}, got {join!r}")
        probes = whole_number(probes, name="probes", least=0)
        super().__init__(model, chosen_blocks(model, only, blocks), seed)
        self.parts, self.strength, self.join = chosen, strength, join
        self._probes, self._before_step = probes, before_step
        where = "this model" if only is None and blocks is None else "what only= or blocks= left"
        for part in chosen:
            if not any(block.kind == KINDS[part] for block in self.blocks):
                raise ValueError(f"{part} constrains {KINDS[part]}, and none was found in {where}")
        self.has_penalty = not before_step or "AM" in chosen

    def start(self, *optimizers: torch.optim.Optimizer) -> Self:
        """Listen to attention, where it is constrained, and follow the optimisers."""
        if self._before_step and not (optimizers or self._hooks):
            raise ValueError("before_step=True needs the optimiser: start(optimizer)")
        return super().start(*optimizers)

    def _begin(self) -> None:
        if "AM" in self.parts:
            super()._begin()

    def _term(self, seen: Products | Scores, seed: int) -> torch.Tensor:
        generator = None
        if self._probes:
            generator = torch.Generator(next(self.model.parameters()).device)
            generator.manual_seed(seed)
        return affinity_penalty(seen, self._probes, generator)

    def _penalty(self) -> torch.Tensor:
        parts = self._parts(weights=not self._before_step)
        return self.strength * sum(parts.values(), self._zero())

    def values(self) -> dict[str, float]:
        """The penalties of the parts, without the strength; AM is NaN before the first pass."""
        with torch.no_grad():
            found = {name: float(value) for name, value in self._parts(weights=True).items()}
        if "AM" in found and not self._terms:
            found["AM"] = math.nan
        return found

    def _parts(self, *, weights: bool) -> dict[str, torch.Tensor]:
        found = {}
        if "AM" in self.parts:
            found["AM"] = self._sum()
        for part in ("LA", "LF"):
            if part in self.parts and weights:
                groups = weight_groups(self.blocks, KINDS[part], self.join)
                found[part] = sum(map(self._group, groups.values()), self._zero())
        return found

    def _group(self, weights: Group) -> torch.Tensor:
        matrices = stacked_matrices(weights, self.join)
        value: torch.Tensor = GramPenalty.apply(*matrices)  # type: ignore[no-untyped-call]
        if self.join == "beside" and len(matrices) > 1:  # the larger Gram matrix of the two
            value = value + sum(map(len, matrices)) - matrices[0].shape[1]
        return value

    def _all_groups(self) -> Iterator[tuple[str, Group]]:
        """The groups of LA and LF, as far as they are constrained."""
        for part in ("LA", "LF"):
            if part in self.parts:
                yield from weight_groups(self.blocks, KINDS[part], self.join).items()

    def parameters(self) -> list[nn.Parameter]:
        """Those whose gradients change before a step; none unless ``before_step``."""
        groups = self._all_groups() if self._before_step else ()
        return [weight.parameter for _, group in groups for weight, _ in group]

    def _follow(self, optimizer: torch.optim.Optimizer) -> list[Any]:
        return [optimizer.register_step_pre_hook(self._pre_hook)]

    def _pre_hook(self, _: Any, args: Any, kwargs: Any) -> Any:
        """Gradients come before the step, or out of a closure that computes them in it."""
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is None:
            self.add_gradients()
            return None

        def computed() -> Any:
            loss = closure()
            self.add_gradients()
            return loss

        return args[:1], {**kwargs, "closure": computed}

    @torch.no_grad()
    def add_gradients(self) -> None:
        """Add the gradients of LA and LF to those that the parameters have."""
        for _, weights in self._all_groups():
            matrices = stacked_matrices(weights, self.join)
            with without_autocast(matrices):
                _, rest = gram_penalty(matrices)
                for (weight, turn), matrix in zip(weights, matrices, strict=True):
                    left, right = gradient_factors(matrix, rest)
                    pair = (right.mT, left.mT) if turn else (left, right)
                    weight.add_product(*pair, 4 * self.strength)

    @torch.no_grad()
    def verify(self) -> list[Verified]:
        """The largest singular value of every group of maps, and what its penalty proves of it."""
        self._check_held(w.parameter for _, group in self._all_groups() for w, _ in group)
        claim = "largest singular value at most √(1 + ‖WᵀW − I‖)"
        found = []
        for name, weights in self._all_groups():
            whole = torch.cat([m.double() for m in stacked_matrices(weights, self.join)])
            largest, _, sigma = singular_values(whole)
            proved = orthogonality_certificate(whole, gram_penalty([whole])[1])
            holds = largest <= proved.upper < math.inf
            found.append(Verified(name, claim, holds, largest, (proved, sigma)))
        return found

    def __str__(self) -> str:
        lines = [f"{' + '.join(self.parts)}, strength {self.strength:g}, on"]
        kinds = {KINDS[part] for part in self.parts}
        return "\n".join([*lines, *(f"  {block}" for block in self.blocks if block.kind in kinds)])
