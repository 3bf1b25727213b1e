"""The loop of a training: steps, log, validation, checkpoints, and stopping when asked to."""

from __future__ import annotations

import math
import statistics
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from taut.control import Monitor
from taut.reproduce.seq2seq.batches import IGNORED, Encoded, endless, grouped, tensors
from taut.reproduce.seq2seq.checkpoint import Progress, best_name, save, save_weights
from taut.reproduce.seq2seq.optimiser_step import OptimiserStep
from taut.reproduce.seq2seq.stopping import Stopped
from taut.reproduce.seq2seq.training_bar import training_bar
from taut.reproduce.seq2seq.training_log import Log

SAVE_EVERY = 60.0  # seconds between two checkpoints
LOG_EVERY = 20  # steps between two lines of the log


class Data(NamedTuple):
    """Pairs as numbers."""

    train: list[Encoded]
    valid: list[Encoded]


class Training:
    """A training under way: from its progress to the last step, or until it is stopped."""

    def __init__(self, step: OptimiserStep, data: Data, folder: Path, progress: Progress) -> None:
        self.step, self.data, self.folder, self.progress = step, data, folder, progress
        self.accelerator, self.recipe = step.accelerator, step.recipe
        self._log: Log | None = None
        self._saved = 0.0  # when the last checkpoint was written
        self._pace: list[float] = []  # seconds of the steps since the last line of the log

    @property
    def _model(self) -> Any:
        return self.accelerator.unwrap_model(self.step.model)

    def go(self, asked: threading.Event) -> None:
        """All steps that are left; ``asked`` is set when the training should stop."""
        progress, recipe = self.progress, self.recipe
        first = self.accelerator.is_main_process
        self._log = Log(self.folder, progress.lines, progress.step) if first else None
        monitor = Monitor(
            self._model, every=recipe.every, weights=True, warn=False,
            log=lambda values, step: self._write(step, values), steps=progress.step,
        )  # fmt: skip
        batches = self._batches()
        self._saved = time.monotonic()
        try:
            with training_bar(recipe.steps, progress.step, quiet=not first) as shown:
                while progress.step < recipe.steps and progress.stale < recipe.patience:
                    loss = self._one(list(islice(batches, recipe.accumulate)), monitor)
                    shown(progress.step, loss)
                    self._save_or_stop(asked)
        finally:
            monitor.close()
            for constraint in self.step.constraints:
                constraint.bake()
            if self._log is not None:
                self._log.close()

    def _one(self, batches: list[dict[str, Any]], monitor: Monitor) -> float:
        """One step with its log and, where it is due, validation; its loss."""
        progress = self.progress
        began = time.monotonic()
        logged = (progress.step + 1) % LOG_EVERY == 0 or progress.step == 0
        values = self.step.take(batches, step=progress.step + 1, logged=logged)
        progress.step += 1
        self._pace.append(time.monotonic() - began)
        progress.seconds += self._pace[-1]
        monitor.step(progress.step)
        if logged:
            # The median leaves out steps that were logged, measured or held up.
            self._write(progress.step, {**values, "step_seconds": statistics.median(self._pace)})
            self._pace.clear()
        if progress.step % self.recipe.every == 0 or progress.step == self.recipe.steps:
            self._write(progress.step, {"valid/loss": self._validate()})
            self._saved = -math.inf
        return values["loss"]

    def _save_or_stop(self, asked: threading.Event) -> None:
        """Save where it is time to, and end where somebody asked for it."""
        stop = self.step.any_process(asked.is_set())
        if stop or self.step.any_process(time.monotonic() - self._saved > SAVE_EVERY):
            save(self.accelerator, self.folder, self.progress)
            self._saved = time.monotonic()
        if stop:
            raise Stopped(f"stopped at step {self.progress.step}: give the same again")

    def _write(self, step: int, values: dict[str, float]) -> None:
        """A line of the log, by the first process alone."""
        if self._log is not None:
            self._log.write(step, values)
            self.progress.lines = self._log.count

    def _batches(self) -> Iterator[dict[str, Any]]:
        """The batches of this process, from the last checkpoint on."""
        here, world = self.accelerator.process_index, self.accelerator.num_processes
        done = self.progress.step * self.recipe.accumulate * world
        every = endless(self.data.train, self.recipe.pieces, self.recipe.seed, done)
        for batch in islice(every, here, None, world):
            yield tensors(self.data.train, batch)

    def _validate(self) -> float:
        """Mean loss of a piece, not smoothed; the best weights are kept.

        They have a name of their own until a checkpoint says that they are the best: a run that is
        killed in between goes on from the last checkpoint and the weights of its time.
        """
        import torch

        self.step.model.eval()
        total, pieces = 0.0, 0
        with torch.no_grad():
            for numbers in grouped(self.data.valid, 4 * self.recipe.pieces):
                batch = tensors(self.data.valid, numbers)
                total += float(self.step.loss(batch, 0.0, "sum"))
                pieces += int((batch["labels"] != IGNORED).sum())
        loss, progress = total / pieces, self.progress
        if loss < progress.best:
            progress.best, progress.best_step, progress.stale = loss, progress.step, 0
            if self.accelerator.is_main_process:
                save_weights(self._model, self.folder / best_name(progress.best_step))
        else:
            progress.stale += 1
        return loss
