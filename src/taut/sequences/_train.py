"""Train a model by a recipe: on accelerate, with checkpoints from which a run goes on exactly."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from taut.control import Monitor
from taut.sequences._bars import training_bar
from taut.sequences._batches import IGNORED, Encoded, endless, grouped, tensors
from taut.sequences._checkpoint import Progress, best_name, load, save, save_weights
from taut.sequences._log import Log
from taut.sequences._recipe import Recipe
from taut.sequences._stopping import Stopped, asked_to_stop
from taut.sequences._ways import constrained, prepared

SAVE_EVERY = 60.0  # seconds between two checkpoints
LOG_EVERY = 20  # steps between two lines of the log


class Data(NamedTuple):
    """Pairs as numbers."""

    train: list[Encoded]
    valid: list[Encoded]


def train(model: Any, data: Data, recipe: Recipe, folder: Path) -> Progress:
    """Train, or go on with it, until the steps are done or validation improves no more.

    Parameters
    ----------
    model
        A new encoder-decoder of transformers; the weights of the best validation are in
        ``folder / "best-STEP"`` afterwards.
    data
        Pairs to train on and to validate with.
    recipe
        Everything else.
    folder
        Of checkpoints, logs and weights. A run that was stopped or killed goes on from there.

    Raises
    ------
    Stopped
        After Ctrl-C or SIGTERM, when the step was finished and its state saved.
    """
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import set_seed
    from transformers import get_inverse_sqrt_schedule

    if not data.train or not data.valid:
        raise ValueError("there are no pairs to train on or to validate with")
    folder.mkdir(parents=True, exist_ok=True)
    AcceleratorState._reset_state()  # an earlier run may have had another precision
    accelerator = Accelerator(mixed_precision=recipe.precision)
    if recipe.precision == "fp16" and accelerator.device.type == "cpu":  # it would be ignored
        raise ValueError("precision fp16 needs a GPU: use bf16 or no")
    prepared(model, recipe.way)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), eps=1e-9)
    schedule = get_inverse_sqrt_schedule(optimizer, recipe.warmup)
    wrapped, stepper = accelerator.prepare(model, optimizer)
    penalties = constrained(accelerator.unwrap_model(wrapped), optimizer, recipe.way, recipe.seed)
    progress = Progress()
    accelerator.register_for_checkpointing(progress, schedule, *penalties)
    set_seed(recipe.seed, device_specific=True)  # dropout differs between processes
    load(accelerator, folder)
    run = _Run(accelerator, wrapped, stepper, schedule, penalties, data, recipe, folder, progress)
    with asked_to_stop() as asked:
        run.go(asked)
    return progress


class _Run:
    """The loop of one run."""

    def __init__(
        self, accelerator: Any, model: Any, optimizer: Any, schedule: Any, penalties: list[Any],
        data: Data, recipe: Recipe, folder: Path, progress: Progress,
    ) -> None:  # fmt: skip
        self.accelerator, self.model, self.optimizer = accelerator, model, optimizer
        self.schedule, self.penalties, self.data = schedule, penalties, data
        self.recipe, self.folder, self.progress = recipe, folder, progress

    def go(self, asked: threading.Event) -> None:
        """All steps that are left."""
        progress, recipe = self.progress, self.recipe
        first = self.accelerator.is_main_process
        log = Log(self.folder, progress.lines, progress.step) if first else None

        def told(step: int, values: dict[str, float]) -> None:
            if log is not None:
                log.write(step, values)
                progress.lines = log.count

        monitor = Monitor(
            self.accelerator.unwrap_model(self.model), every=recipe.every, weights=True,
            heads=False, warn=False, log=lambda values, step: told(step, values),
            steps=progress.step,
        )  # fmt: skip
        batches = self._batches()
        saved = time.monotonic()
        pace: list[float] = []  # seconds of the steps since the last line of the log
        try:
            with training_bar(recipe.steps, progress.step, quiet=not first) as shown:
                while progress.step < recipe.steps and progress.stale < recipe.patience:
                    began = time.monotonic()
                    logged = (progress.step + 1) % LOG_EVERY == 0 or progress.step == 0
                    values = self._step(list(islice(batches, recipe.accumulate)), logged)
                    progress.step += 1
                    pace.append(time.monotonic() - began)
                    progress.seconds += pace[-1]
                    monitor.step(progress.step)
                    if logged:
                        # The median leaves out steps that were logged, measured or held up.
                        told(progress.step, {**values, "step_seconds": statistics.median(pace)})
                        pace.clear()
                    last = progress.step == recipe.steps
                    if progress.step % recipe.every == 0 or last:
                        told(progress.step, {"valid/loss": self._validate()})
                        saved = -math.inf
                    shown(progress.step, values["loss"])
                    stop = self._any(asked.is_set())
                    if stop or self._any(time.monotonic() - saved > SAVE_EVERY):
                        save(self.accelerator, self.folder, progress)
                        saved = time.monotonic()
                    if stop:
                        raise Stopped(f"stopped at step {progress.step}: give the same again")
        finally:
            monitor.close()
            for penalty in self.penalties:
                penalty.bake()
            if log is not None:
                log.close()

    def _any(self, mine: bool) -> bool:
        """Whether one of the processes says so: they save and stop together, or wait for ever."""
        import torch

        if self.accelerator.num_processes == 1:
            return mine
        votes = torch.tensor(float(mine), device=self.accelerator.device)
        return float(self.accelerator.reduce(votes, "sum")) > 0

    def _batches(self) -> Iterator[dict[str, Any]]:
        """Those of this process, from where the last checkpoint was."""
        here, world = self.accelerator.process_index, self.accelerator.num_processes
        done = self.progress.step * self.recipe.accumulate * world
        every = endless(self.data.train, self.recipe.pieces, self.recipe.seed, done)
        for batch in islice(every, here, None, world):
            yield tensors(self.data.train, batch)

    def _step(self, batches: list[dict[str, Any]], logged: bool) -> dict[str, float]:
        """One step of the optimiser; the task's loss and what each penalty adds to it, and more."""
        self.model.train()
        sums: dict[str, float] = {"loss": 0.0}
        more: dict[str, float] = {}  # penalties by part or layer, without their strength
        for number, batch in enumerate(batches):
            waits = number < len(batches) - 1  # gradients meet those of other processes once
            with self.accelerator.no_sync(self.model) if waits else nullcontext():
                loss = self._loss(batch, self.recipe.smoothing, "mean")
                sums["loss"] += float(loss.detach()) / len(batches)
                for penalty in self.penalties:
                    extra = penalty.penalty()
                    name = f"penalty/{penalty.name}"
                    sums[name] = sums.get(name, 0.0) + float(extra.detach()) / len(batches)
                    loss = loss + extra
                    # These are computed once more, for the log alone.
                    for name, value in penalty.values().items() if logged else ():
                        more[name] = more.get(name, 0.0) + value / len(batches)
                self.accelerator.backward(loss / len(batches))
        norm = float(self.accelerator.clip_grad_norm_(self.model.parameters(), self.recipe.clip))
        self._check(sums, norm)
        self.optimizer.step()
        self.schedule.step()
        self.optimizer.zero_grad()
        sums |= {f"values/{name}": value for name, value in more.items()}
        means = self._means(sums) if logged else sums
        return {**means, "gradient": norm, "rate": self.schedule.get_last_lr()[0]}

    def _check(self, sums: dict[str, float], norm: float) -> None:
        """End the run where a loss, a penalty or the gradient is not a number."""
        # In fp16 gradients may overflow: then accelerate leaves the step out.
        broken = not all(map(math.isfinite, sums.values())) or (
            self.recipe.precision != "fp16" and not math.isfinite(norm)
        )
        if self._any(broken):
            penalties = "".join(f", {n} {v:g}" for n, v in sums.items() if n != "loss")
            raise FloatingPointError(
                f"the loss is {sums['loss']:g}{penalties} and its gradient {norm:g} at step "
                f"{self.progress.step + 1}: try a smaller rate or strength"
            )

    def _means(self, mine: dict[str, float]) -> dict[str, float]:
        """Over the processes, as gradients are."""
        import torch

        if self.accelerator.num_processes == 1:
            return mine
        values = torch.tensor(list(mine.values()), device=self.accelerator.device)
        means = self.accelerator.reduce(values, "mean").tolist()
        return dict(zip(mine, means, strict=True))

    def _loss(self, batch: dict[str, Any], smoothing: float, reduction: str) -> Any:
        from torch.nn.functional import cross_entropy

        given = {name: value.to(self.accelerator.device) for name, value in batch.items()}
        labels = given.pop("labels")
        logits = self.model(**given).logits.float()
        return cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction=reduction,
            label_smoothing=smoothing,
        )  # fmt: skip

    def _validate(self) -> float:
        """Mean loss of a piece, not smoothed; the best weights are kept.

        Under a name of their own, until a checkpoint says that they are the best: a run that is
        killed in between goes on from the last checkpoint and the weights of its time.
        """
        import torch

        self.model.eval()
        total, pieces = 0.0, 0
        with torch.no_grad():
            for numbers in grouped(self.data.valid, 4 * self.recipe.pieces):
                batch = tensors(self.data.valid, numbers)
                total += float(self._loss(batch, 0.0, "sum"))
                pieces += int((batch["labels"] != IGNORED).sum())
        loss, progress = total / pieces, self.progress
        if loss < progress.best:
            progress.best, progress.best_step, progress.stale = loss, progress.step, 0
            if self.accelerator.is_main_process:
                save_weights(
                    self.accelerator.unwrap_model(self.model),
                    self.folder / best_name(progress.best_step),
                )
        else:
            progress.stale += 1
        return loss
