"""Orthogonality constraints (S4) on any transformer: a penalty to add to the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from taut._checks import whole_number
from taut.control._affinity import affinity_penalty
from taut.control._attach import Attached, check
from taut.control._find import Block, Only, chosen_blocks, distinct
from taut.control._gram import Gram, exactly, factors, gram
from taut.control._in_pass import InPass
from taut.control._seen import Products, Scores
from taut.control._weights import Weight, joined

PRESETS = {"VAR-I": ("AM",), "VAR-II": ("AM", "LA"), "VAR-III": ("AM", "LA", "LF")}
PARTS = ("AM", "LA", "LF")
JOINS = ("stack", "beside", "each")


class Verified(NamedTuple):
    """One matrix against its singular values."""

    name: str
    penalty: float  # ‖WᵀW − I‖²_F of the matrix or the joined ones
    sigma: float  # largest singular value, by a singular value decomposition
    certificate: float  # √(1 + ‖WᵀW − I‖_F), never below it (theorem ortho-cert)


class Orthogonality(InPass):
    """Penalties that pull linear maps and attention matrices towards orthogonality.

    Made by :func:`constrain`.
    """

    name = "orthogonality"

    def __init__(
        self,
        model: nn.Module,
        parts: Sequence[str],
        strength: float,
        blocks: Sequence[Block],
        join: str,
        probes: int,
        seed: int,
    ) -> None:
        super().__init__(model, seed)
        self.parts, self.strength = tuple(parts), strength
        self.blocks, self.join, self._probes = list(blocks), join, probes

    def apply(self) -> Orthogonality:
        """Begin to watch attention, where it is constrained. Weights need nothing."""
        if "AM" in self.parts:
            self._listen(self.blocks)
        return self

    def _term(self, seen: Products | Scores, seed: int) -> torch.Tensor:
        generator = None
        if self._probes:
            generator = torch.Generator(next(self.model.parameters()).device)
            generator.manual_seed(seed)
        return affinity_penalty(seen, self._probes, generator)

    def penalty(self) -> torch.Tensor:
        """What to add to the loss: of the weights now, and of attention in the last pass.

        While the constraint is attached to an optimiser, which adds the weights' part by itself,
        only that of attention.
        """
        parts = self._parts(weights=not self._attached)
        return self.strength * sum(parts.values(), self._zero())

    def values(self) -> dict[str, float]:
        """The penalties by part, without the strength, for a log."""
        with torch.no_grad():
            found = {name: float(value) for name, value in self._parts(weights=True).items()}
        if "AM" in found and not self._terms:
            found["AM"] = math.nan  # no pass yet
        return found

    def _parts(self, *, weights: bool) -> dict[str, torch.Tensor]:
        found = {}
        if "AM" in self.parts:
            found["AM"] = self._sum()
        for part, kind in (("LA", "attention"), ("LF", "feed-forward")):
            if part in self.parts and weights:
                groups = self._groups(kind)
                found[part] = sum(map(self._group, groups.values()), self._zero())
        return found

    def _group(self, weights: list[tuple[Weight, bool]]) -> torch.Tensor:
        matrices = _matrices(weights, self.join)
        value: torch.Tensor = Gram.apply(*matrices)  # type: ignore[no-untyped-call]
        if self.join == "beside" and len(matrices) > 1:  # the larger Gram matrix of the two
            value = value + sum(map(len, matrices)) - matrices[0].shape[1]
        return value

    def _groups(self, kind: str) -> dict[str, list[tuple[Weight, bool]]]:
        """Matrices that stand below each other, by name; True where they are transposed for it."""
        found: dict[str, list[tuple[Weight, bool]]] = {}
        for block in distinct(self.blocks):
            if block.kind != kind:
                continue
            if kind == "attention" and self.join != "each":
                # The width of the model goes last; in the output it is first.
                inner = joined(w for role, w in block.weights.items() if role != "output")
                found[block.path] = [(w, False) for w in inner]
                found[block.path] += [(w, True) for r, w in block.weights.items() if r == "output"]
            else:
                found |= {str(w): [(w, False)] for w in block.weights.values()}
        return found

    def attach(self, optimizer: torch.optim.Optimizer) -> Attached:
        """Add the gradients of the weights' part (LA, LF) before every step of an optimiser.

        This costs one pass a step, however many passes are accumulated, and comes after gradient
        clipping and unscaling. Attention's part (AM) must still be added to the loss, as
        :meth:`penalty`. Returns a handle with ``remove()``.
        """
        check(optimizer, self.parameters())
        return Attached(optimizer.register_step_pre_hook(self._before_step), self._attached)

    def _before_step(self, _: Any, args: Any, kwargs: Any) -> Any:
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

    def parameters(self) -> list[nn.Parameter]:
        """Those of the constrained maps."""
        return [weight.parameter for block in self.blocks for weight in block.weights.values()]

    @torch.no_grad()
    def add_gradients(self) -> None:
        """Add the gradients of the weights' part to those that the parameters have."""
        for part, kind in (("LA", "attention"), ("LF", "feed-forward")):
            for weights in self._groups(kind).values() if part in self.parts else ():
                matrices = _matrices(weights, self.join)
                with exactly(matrices):
                    _, rest = gram(matrices)
                    for (weight, turn), matrix in zip(weights, matrices, strict=True):
                        left, right = factors(matrix, rest)
                        pair = (right.mT, left.mT) if turn else (left, right)
                        weight.add_product(*pair, 4 * self.strength)

    @torch.no_grad()
    def verify(self) -> list[Verified]:
        """Every constrained group of weights against its exact singular values."""
        found = []
        for part, kind in (("LA", "attention"), ("LF", "feed-forward")):
            for name, weights in self._groups(kind).items() if part in self.parts else ():
                joined = torch.cat([m.double() for m in _matrices(weights, self.join)])
                value = float(gram([joined])[0])
                sigma = float(torch.linalg.matrix_norm(joined, 2))
                found.append(Verified(name, value, sigma, math.sqrt(1 + math.sqrt(value))))
        return found

    def __str__(self) -> str:
        lines = [f"{' + '.join(self.parts)}, strength {self.strength:g}, on"]
        kinds = {"attention": {"AM", "LA"}, "feed-forward": {"LF"}}
        lines += [f"  {b}" for b in self.blocks if kinds[b.kind] & set(self.parts)]
        return "\n".join(lines)


def _matrices(weights: list[tuple[Weight, bool]], join: str) -> list[torch.Tensor]:
    """The matrices of a group, as they stand below each other; half precision would overflow."""
    found = [w.matrix().mT if turn else w.matrix() for w, turn in weights]
    if len({matrix.shape[1] for matrix in found}) > 1:
        names = ", ".join(str(weight) for weight, _ in weights)
        raise ValueError(
            f"maps of different widths cannot be joined ({join}): {names}; join='each'"
        )
    return [m.float() if m.dtype in (torch.float16, torch.bfloat16) else m for m in found]


def constrain(
    model: nn.Module,
    preset: str | Sequence[str] = "VAR-III",
    *,
    strength: float = 1e-8,
    join: str = "stack",
    only: Only = None,
    blocks: Sequence[Block] | None = None,
    probes: int = 0,
    seed: int = 0,
) -> Orthogonality:
    """Constrain a transformer to orthogonality, as S4 does, by penalties.

    Parameters
    ----------
    model
        Any model whose attention and feed-forward networks can be found
        (:func:`taut.control.find_blocks`).
    preset
        ``"VAR-I"`` (attention matrices), ``"VAR-II"`` (and the linear maps of attention),
        ``"VAR-III"`` (and those of feed-forward networks), or a list of ``"AM"``, ``"LA"`` and
        ``"LF"``.
    strength
        λ, at least 0. S4 tries 1e-6, 1e-8 and 1e-10.
    join
        How query, key, value and output maps of a layer are put together, of which S4 says nothing:
        ``"stack"``, below each other, the width of the model in the columns; ``"beside"`` each
        other, the transpose, whose penalty is larger by a constant; or ``"each"`` by itself.
    only
        A pattern of the paths of blocks, such as ``"encoder.*"``, or several; ``print`` of what
        :func:`find_blocks` gives shows them.
    blocks
        The weights themselves, instead of those that are found.
    probes
        Estimate the penalty of attention from so many random directions, without bias; 0: exactly.
    seed
        Of the random directions.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    >>> constraint = constrain(model, "VAR-III", strength=1e-3)
    >>> loss = model(torch.randn(2, 5, 8)).square().mean() + constraint.penalty()
    >>> loss.backward()
    >>> sorted(constraint.values())
    ['AM', 'LA', 'LF']
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    probes = whole_number(probes, name="probes", least=0)
    parts = PRESETS.get(preset, (preset,)) if isinstance(preset, str) else tuple(preset)
    if not parts or not set(parts) <= set(PARTS):
        known = ", ".join([*PRESETS, *PARTS])
        raise ValueError(f"preset must be one of {known}, or a list of parts, got {preset!r}")
    if not isinstance(strength, (int, float)) or not 0 <= strength < math.inf:
        raise ValueError(f"strength must be a number of at least 0, got {strength!r}")
    if join not in JOINS:
        raise ValueError(f"join must be one of {', '.join(JOINS)}, got {join!r}")
    chosen = chosen_blocks(model, only, blocks)
    needed = {"AM": "attention", "LA": "attention", "LF": "feed-forward"}
    for part in parts:
        if not any(block.kind == needed[part] for block in chosen):
            where = (
                "this model" if only is None and blocks is None else "what only= or blocks= left"
            )
            raise ValueError(f"{part} constrains {needed[part]}, and none was found in {where}")
    return Orthogonality(model, parts, strength, chosen, join, probes, seed).apply()
