"""Train a model until faults begin, then go on from there once in each way, and record signals."""

from __future__ import annotations

import copy
import math
import time
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from taut._base.progress import shown
from taut.reproduce.early_warning.decoder import WatchedDecoder
from taut.reproduce.early_warning.faults import Disturbance
from taut.reproduce.early_warning.signals import attention_signals
from taut.reproduce.lipschitz.characters import Characters, drawn_batch, fixed_batches


class FamilyRecipe(NamedTuple):
    """Sizes of the model and of its trainings; ``every`` so many steps signals are recorded."""

    tokens: int = 64
    width: int = 64
    layers: int = 2
    heads: int = 4
    batch: int = 8
    rate: float = 6e-3
    warm_up: int = 30
    before: int = 450  # steps before faults begin
    after: int = 100
    every: int = 5


QUICK = FamilyRecipe(tokens=16, width=16, layers=1, heads=2, batch=4, before=42, after=6, every=1)


class _State:
    """A model in training, which can be copied."""

    def __init__(self, seed: int, recipe: FamilyRecipe, text: Characters) -> None:
        torch.manual_seed(seed)
        self.recipe, self.text, self.step = recipe, text, 0
        self.model = WatchedDecoder(
            len(text.alphabet), tokens=recipe.tokens, width=recipe.width, layers=recipe.layers,
            heads=recipe.heads,
        )  # fmt: skip
        self.optimiser = torch.optim.AdamW(
            self.model.parameters(),
            lr=recipe.rate,
            betas=(0.9, 0.99),
            weight_decay=0.0,
            fused=True,
        )
        self.source = torch.Generator().manual_seed(seed)
        self.held_out = fixed_batches(text.held_out, 16, recipe.tokens, 1)[0]
        self.constants: list[list[float]] = []

    def advance(self, how: Disturbance, since: int) -> dict[str, Any] | None:
        """One step; what is recorded, if it is time. ``since`` counts from where faults begin."""
        recipe, model = self.recipe, self.model
        for block in model.blocks:
            block["attention"].bits = how.bits
        ids, following = drawn_batch(self.text.train, recipe.batch, recipe.tokens, self.source)
        bad = torch.rand(recipe.batch, generator=self.source) < how.bad_at(since)
        following = torch.where(bad[:, None], following.roll(1, 0), following)
        loss = self._loss(ids, following)
        self.optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        found: dict[str, Any] | None = None
        if self.step % recipe.every == 0:
            found = {"step": self.step, "loss": float(loss.detach()), "gradient_norm": float(norm)}
            found |= attention_signals(model, self.constants)
            self.constants = found["head_constant"]
            found["held_out"] = self._held_out()
        for group in self.optimiser.param_groups:
            warm = min(1.0, (self.step + 1) / recipe.warm_up)
            group["lr"] = recipe.rate * warm * how.rate_at(since)
        self.optimiser.step()
        with torch.no_grad():
            for block in model.blocks:
                for each in (block["attention"].query, block["attention"].key):
                    each.weight.mul_(1 + how.growth)
        self.step += 1
        return found

    def _loss(self, ids: Tensor, following: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(ids).flatten(0, 1), following.flatten())

    @torch.no_grad()
    def _held_out(self) -> float:
        """The loss that says what became of the run; it is no signal."""
        return float(self._loss(self.held_out[:, :-1], self.held_out[:, 1:]))


def train_family(
    seed: int, recipe: FamilyRecipe, ways: dict[str, Disturbance], text: Characters, what: str
) -> dict[str, Any]:
    """Train from one seed, and go on in every way from the same weights; a record of all of it."""
    begun, state, history = time.process_time(), _State(seed, recipe, text), []
    usual = Disturbance("nothing is changed")
    for _ in shown(range(recipe.before), recipe.before, f"{what}, before faults"):
        history.append(state.advance(usual, 0))
    branches = {}
    for name, how in ways.items():
        each, found = copy.deepcopy(state), []
        each.source.manual_seed(1000 * (seed + 1) + how.order)
        for since in shown(range(recipe.after), recipe.after, f"{what}, {name}"):
            found.append(each.advance(how, since))
            if found[-1] and not math.isfinite(found[-1]["held_out"]):
                break  # nothing comes after NaN
        branches[name] = [record for record in found if record]
    return {
        "seed": seed,
        "recipe": recipe._asdict(),
        "ways": {name: how._asdict() for name, how in ways.items()},
        "history": [record for record in history if record],
        "branches": branches,
        "seconds": time.process_time() - begun,
    }
