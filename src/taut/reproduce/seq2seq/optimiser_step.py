"""One step of the optimiser: losses, penalties and gradients, over all processes of a training."""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import Any

from taut.control import Constraint
from taut.reproduce.seq2seq.batches import IGNORED
from taut.reproduce.seq2seq.recipe import Recipe


class OptimiserStep:
    """What a step needs: the model as accelerate wrapped it, its optimiser and its constraints."""

    def __init__(
        self, accelerator: Any, model: Any, optimizer: Any, schedule: Any,
        constraints: list[Constraint], recipe: Recipe,
    ) -> None:  # fmt: skip
        self.accelerator, self.model, self.optimizer = accelerator, model, optimizer
        self.schedule, self.constraints, self.recipe = schedule, constraints, recipe

    def take(self, batches: list[dict[str, Any]], *, step: int, logged: bool) -> dict[str, float]:
        """Take step number ``step``; the task's loss, what each penalty adds, and more.

        With ``logged`` the values are means over the processes, and the parts of the penalties are
        computed as well.
        """
        self.model.train()
        sums: dict[str, float] = {"loss": 0.0}
        parts: dict[str, float] = {}  # of penalties, by part or layer, without their strength
        for number, batch in enumerate(batches):
            waits = number < len(batches) - 1  # gradients meet those of other processes once
            with self.accelerator.no_sync(self.model) if waits else nullcontext():
                loss = self.loss(batch, self.recipe.smoothing, "mean")
                sums["loss"] += float(loss.detach()) / len(batches)
                for constraint in self.constraints:
                    if not constraint.has_penalty:
                        continue
                    extra = constraint.penalty()
                    _add(sums, f"penalty/{constraint.name}", float(extra.detach()) / len(batches))
                    loss = loss + extra
                    # These are computed once more, for the log alone.
                    for name, value in constraint.values().items() if logged else ():
                        _add(parts, f"values/{name}", value / len(batches))
                self.accelerator.backward(loss / len(batches))
        norm = float(self.accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.clip))
        self._check(sums, norm, step)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        sums |= parts
        means = self._means(sums) if logged else sums
        return {**means, "gradient": norm, "rate": self.schedule.get_last_lr()[0]}

    def loss(self, batch: dict[str, Any], smoothing: float, reduction: str) -> Any:
        """Cross-entropy of the labels of a batch."""
        from torch.nn.functional import cross_entropy

        given = {name: value.to(self.accelerator.device) for name, value in batch.items()}
        labels = given.pop("labels")
        logits = self.model(**given).logits.float()
        return cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction=reduction,
            label_smoothing=smoothing,
        )  # fmt: skip

    def any_process(self, mine: bool) -> bool:
        """Whether one of the processes says so: they save and stop together, or wait for ever."""
        import torch

        if self.accelerator.num_processes == 1:
            return mine
        votes = torch.tensor(float(mine), device=self.accelerator.device)
        return float(self.accelerator.reduce(votes, "sum")) > 0

    def _check(self, sums: dict[str, float], norm: float, step: int) -> None:
        """End the run where a loss, a penalty or the gradient is not a number."""
        # In fp16 gradients may overflow: then accelerate leaves the step out.
        broken = not all(map(math.isfinite, sums.values())) or (
            self.recipe.precision != "fp16" and not math.isfinite(norm)
        )
        if self.any_process(broken):
            penalties = "".join(f", {n} {v:g}" for n, v in sums.items() if n != "loss")
            raise FloatingPointError(
                f"the loss is {sums['loss']:g}{penalties} and its gradient {norm:g} at step "
                f"{step}: try a smaller rate or strength"
            )

    def _means(self, mine: dict[str, float]) -> dict[str, float]:
        """Means over the processes, as for gradients."""
        import torch

        if self.accelerator.num_processes == 1:
            return mine
        values = torch.tensor(list(mine.values()), device=self.accelerator.device)
        means = self.accelerator.reduce(values, "mean").tolist()
        return dict(zip(mine, means, strict=True))


def _add(sums: dict[str, float], name: str, value: float) -> None:
    sums[name] = sums.get(name, 0.0) + value
