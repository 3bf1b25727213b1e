"""Train a model by a recipe: on accelerate, with checkpoints from which a run goes on exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from taut.reproduce.seq2seq.checkpoint import Progress, load
from taut.reproduce.seq2seq.methods import constrained, prepared
from taut.reproduce.seq2seq.needed_packages import for_training
from taut.reproduce.seq2seq.optimiser_step import OptimiserStep
from taut.reproduce.seq2seq.recipe import Recipe
from taut.reproduce.seq2seq.stopping import asked_to_stop
from taut.reproduce.seq2seq.training import Data, Training


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
    with for_training():
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
    prepared(model, recipe.method)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.rate, betas=(0.9, 0.98), eps=1e-9)
    schedule = get_inverse_sqrt_schedule(optimizer, recipe.warmup)
    wrapped, stepper = accelerator.prepare(model, optimizer)
    constraints = constrained(
        accelerator.unwrap_model(wrapped), optimizer, recipe.method, recipe.seed
    )
    progress = Progress()
    accelerator.register_for_checkpointing(progress, schedule, *constraints)
    set_seed(recipe.seed, device_specific=True)  # dropout differs between processes
    load(accelerator, folder)
    step = OptimiserStep(accelerator, wrapped, stepper, schedule, constraints, recipe)
    with asked_to_stop() as asked:
        Training(step, data, folder, progress).go(asked)
    return progress
