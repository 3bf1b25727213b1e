"""What trainers log: the task's loss as ``loss``, and each penalty under its own name."""

from __future__ import annotations

import functools
import json
import math
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import control  # noqa: E402
from tests.control.test_training import no_dropout  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402
from tests.helpers.places import ROOT  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # trainers warn of small machines
ORTHOGONALITY, LOCAL = "penalty/orthogonality", "penalty/local_constant"


def gpt2():
    return no_dropout(tiny("gpt2")[0])


def both(model):
    return [
        control.Orthogonality(model, "VAR-III", strength=1e-2, probes=2),
        control.LocalConstant(model, limit=0.01, strength=10.0, rows=2),
    ]


def weights(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def same(one, two):
    return all(torch.equal(one[name], two[name]) for name in one)


class Summed(transformers.Trainer):
    """The sum of loss and penalties, as one would write it by hand: what must be optimised."""

    constraints = ()

    def compute_loss(self, *args, num_items_in_batch=None, **kwargs):
        found = super().compute_loss(*args, num_items_in_batch=num_items_in_batch, **kwargs)
        loss = found[0] if isinstance(found, tuple) else found
        if not loss.requires_grad:
            return found
        extra = sum(constraint.penalty() for constraint in self.constraints)
        scaled = self.model_accepts_loss_kwargs and num_items_in_batch is not None
        if scaled or self.compute_loss_func is not None:
            extra = extra / self.current_gradient_accumulation_steps
        return loss + extra


class Seen(transformers.TrainerCallback):
    """What the reports get, which come before callbacks that are added later."""

    def __init__(self, constraints):
        self.logs, self.constraints = [], constraints

    def on_step_begin(self, args, state, control, **kwargs):
        for constraint in self.constraints:  # its draws are those of the step
            passes = state.global_step * args.gradient_accumulation_steps
            constraint.load_state_dict({"passes": passes})

    def on_log(self, args, state, control, logs=None, **kwargs):
        self.logs.append(dict(logs))


def trained(folder, model, *groups, summed=(), checkpoint=None, trainer=None, **options):
    """A few steps on random text; the trainer, and what its reports have seen."""
    from taut.control import HuggingFaceConstraints

    loss_func = options.pop("compute_loss_func", None)
    ids = torch.randint(0, 60, (16, 7), generator=torch.Generator().manual_seed(0))
    data = [{"input_ids": row, "labels": row} for row in ids]
    given = {"max_steps": 4, "per_device_train_batch_size": 4, "logging_steps": 1, **options}
    arguments = transformers.TrainingArguments(
        str(folder), use_cpu=True, report_to=[], disable_tqdm=True, seed=0, learning_rate=1e-2,
        lr_scheduler_type="constant", **{"save_strategy": "no", **given},
    )  # fmt: skip
    seen = Seen(summed)
    kind = trainer or (Summed if summed else transformers.Trainer)
    made = kind(
        model, arguments, train_dataset=data, eval_dataset=data[:8], callbacks=[seen],
        compute_loss_func=loss_func,
    )  # fmt: skip
    made.constraints = [constraint.start() for constraint in summed]
    for group in groups:
        made.add_callback(HuggingFaceConstraints(made, *group))
    made.train(resume_from_checkpoint=checkpoint)
    assert not {"compute_loss", "log"} & set(vars(made))
    assert not any(constraint.running for group in groups for constraint in group)
    return made, seen.logs


def losses(logs):
    return [line["loss"] for line in logs if "loss" in line]


def penalties(logs):
    return [
        {name: value for name, value in line.items() if name.startswith("penalty/")}
        for line in logs
        if "loss" in line
    ]


def cross_entropy(outputs, labels, num_items_in_batch=None):
    logits = outputs["logits"][:, :-1].flatten(0, 1)
    return torch.nn.functional.cross_entropy(logits, labels[:, 1:].flatten(), reduction="sum") / (
        num_items_in_batch or labels[:, 1:].numel()
    )


OPTIONS = {
    "plain": {},
    "accumulated": {"gradient_accumulation_steps": 2, "per_device_train_batch_size": 2},
    "remainder": {"gradient_accumulation_steps": 3, "per_device_train_batch_size": 2},
    "smoothed": {"label_smoothing_factor": 0.1, "gradient_accumulation_steps": 2},
    "function": {"compute_loss_func": cross_entropy, "gradient_accumulation_steps": 2},
    "seldom": {"logging_steps": 3, "logging_first_step": True, "max_steps": 5},
    "checkpoints": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
    },
}


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_trainer_logs_the_loss_of_the_task(kind, tmp_path):
    """Against trainers without penalties (first step) and with the sum by hand (all steps)."""
    options = OPTIONS[kind]
    _, plain = trained(tmp_path, gpt2(), **options)
    model = gpt2()
    trainer, logs = trained(tmp_path, model, both(model), **options)
    byhand = gpt2()
    _, sums = trained(tmp_path, byhand, summed=both(byhand), **options)
    assert same(weights(model), weights(byhand))
    assert losses(logs)[0] == losses(plain)[0]
    assert len(logs) == len(plain) == len(sums)
    for line, total, parts in zip(losses(logs), losses(sums), penalties(logs), strict=True):
        assert set(parts) == {ORTHOGONALITY, LOCAL}
        assert min(parts.values()) > 0
        assert line + sum(parts.values()) == pytest.approx(total, rel=1e-5)
    history = [line for line in trainer.state.log_history if "loss" in line]
    assert losses(history) == losses(logs)
    assert penalties(history) == penalties(logs)
    steps = [line["step"] for line in history]
    widths = [b - a for a, b in zip([0, *steps], steps, strict=False)]
    if sum(widths) == trainer.state.global_step:
        mean = sum(w * x for w, x in zip(widths, losses(logs), strict=True)) / sum(widths)
        assert logs[-1]["train_loss"] == pytest.approx(mean, rel=1e-5)
    assert logs[-1]["train_loss"] < sums[-1]["train_loss"]
    assert "penalty" not in " ".join(logs[-1])
    assert [line.get("grad_norm") for line in logs] == [line.get("grad_norm") for line in sums]


def test_the_loss_of_evaluation_is_that_of_the_task(tmp_path):
    model = gpt2()
    options = {"eval_strategy": "steps", "eval_steps": 2}
    trainer, logs = trained(tmp_path, model, both(model), **options)
    found = [line["eval_loss"] for line in logs if "eval_loss" in line]
    assert len(found) == 2
    assert trainer.evaluate()["eval_loss"] == found[-1]
    assert not any("penalty" in name for line in logs if "eval_loss" in line for name in line)


def test_a_training_that_goes_on_logs_the_same(tmp_path):
    model = gpt2()
    options = {"save_strategy": "steps", "save_steps": 2, "logging_steps": 2}
    _, whole = trained(tmp_path, model, both(model), **options)
    again = gpt2()
    _, rest = trained(
        tmp_path, again, both(again), checkpoint=str(tmp_path / "checkpoint-2"), **options
    )
    assert losses(rest) == losses(whole)[1:]
    assert penalties(rest) == penalties(whole)[1:]
    assert same(weights(model), weights(again))


def test_penalties_of_one_kind_are_told_apart(tmp_path):
    """Given to one callback or to two, of which each must do its part."""

    def constraints(model):
        parts = [control.Orthogonality(model, part, strength=1e-2) for part in ("AM", "LA", "LF")]
        parts[2].name = "feed_forward"
        return parts

    byhand = gpt2()
    _, sums = trained(tmp_path, byhand, summed=constraints(byhand))
    for split in (3, 1):
        model = gpt2()
        made = constraints(model)
        groups = [group for group in (made[:split], made[split:]) if group]
        _, logs = trained(tmp_path, model, *groups)
        for name in weights(model):
            torch.testing.assert_close(weights(model)[name], weights(byhand)[name])
        for line, total, parts in zip(losses(logs), losses(sums), penalties(logs), strict=True):
            expected = {ORTHOGONALITY, f"{ORTHOGONALITY}_2", "penalty/feed_forward"}
            assert set(parts) == expected
            assert line + sum(parts.values()) == pytest.approx(total, rel=1e-5)


def test_a_penalty_that_is_no_number_is_seen_in_the_loss(tmp_path):
    model = gpt2()
    constraint = control.Orthogonality(model, "LF", strength=1e-2)
    constraint.strength = math.inf
    _, logs = trained(tmp_path, model, [constraint], logging_nan_inf_filter=False, max_steps=1)
    assert not math.isfinite(losses(logs)[0])
    assert not math.isfinite(penalties(logs)[0][ORTHOGONALITY])


def test_the_trainers_word_on_scaled_losses_is_heard(tmp_path):
    """A trainer that divides by the number of passes itself; a penalty was divided twice."""

    class Divides(transformers.Trainer):
        loss_is_scaled_for_ga = False

        def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
            return super().compute_loss(model, inputs, return_outputs)

    if not hasattr(transformers.Trainer, "loss_is_scaled_for_ga"):
        pytest.skip("this version has no such attribute")
    found = []
    for passes in (1, 2):
        model = gpt2()
        made = [control.Orthogonality(model, "LF", strength=1.0)]
        trained(
            tmp_path, model, made, trainer=Divides, gradient_accumulation_steps=passes,
            per_device_train_batch_size=8 // passes, optim="sgd", max_grad_norm=0.0,
        )  # fmt: skip
        found.append(weights(model))
    for name in found[0]:
        torch.testing.assert_close(found[0][name], found[1][name])


def test_what_was_there_before_is_put_back(tmp_path):
    """Also where the trainer has a loss of its own, not of its class."""
    from taut.control import HuggingFaceConstraints

    model = gpt2()
    data = [{"input_ids": torch.arange(7), "labels": torch.arange(7)}] * 4
    arguments = transformers.TrainingArguments(
        str(tmp_path), use_cpu=True, report_to=[], disable_tqdm=True, max_steps=1,
        save_strategy="no",
    )  # fmt: skip
    trainer = transformers.Trainer(model, arguments, train_dataset=data)
    own = functools.partial(trainer.compute_loss)
    trainer.compute_loss = own
    trainer.add_callback(HuggingFaceConstraints(trainer, control.Orthogonality(model, "LF")))
    trainer.add_callback(HuggingFaceConstraints(trainer, control.Orthogonality(model, "LA")))
    trainer.train()
    assert trainer.compute_loss is own
    assert "log" not in vars(trainer)


PROCESSES = """
import json, sys
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
from tests.control import test_logs as t
model = t.gpt2()
made = [t.control.Orthogonality(model, "VAR-III", strength=1e-2)]
trainer, logs = t.trained(sys.argv[1], model, made, per_device_train_batch_size=2)
if trainer.is_world_process_zero():
    print("LOGS" + json.dumps([t.losses(logs), [p[t.ORTHOGONALITY] for p in t.penalties(logs)]]))
"""


@pytest.mark.slow
def test_two_processes_log_their_mean(tmp_path):
    script = tmp_path / "two.py"
    script.write_text(PROCESSES.format(tests=str(ROOT)))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
               "2", str(script), str(tmp_path)]  # fmt: skip
    env = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("LOGS"))
    model = gpt2()
    made = control.Orthogonality(model, "VAR-III", strength=1e-2)
    _, logs = trained(tmp_path, model, [made], per_device_train_batch_size=4)
    found = json.loads(line.removeprefix("LOGS"))
    assert found[0] == pytest.approx(losses(logs), rel=1e-4)
    assert found[1] == pytest.approx([p[ORTHOGONALITY] for p in penalties(logs)], rel=1e-4)


# ---- Lightning


def module_of(lightning, optimizer, returned):
    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = gpt2()
            self.outputs = []

        def training_step(self, batch):  # without the number of the batch, which is allowed
            loss = self.model(input_ids=batch, labels=batch).loss
            self.log("loss", loss, prog_bar=True)
            return returned(loss)

        def on_train_batch_end(self, outputs, *_):
            self.outputs.append(outputs["loss"].item())

        def configure_optimizers(self):
            return optimizer(self.parameters())

    return Module()


@pytest.mark.parametrize(
    ("package", "kind"),
    [("lightning.pytorch", kind) for kind in ("plain", "accumulated", "dict", "closures")]
    + [("pytorch_lightning", "plain")],
)
def test_lightning_logs_the_loss_of_the_task(package, kind, tmp_path):
    lightning = pytest.importorskip(package)
    from taut.control import LightningConstraints

    accumulate = 2 if kind == "accumulated" else 1
    batches = list(torch.randint(0, 60, (4, 2, 7), generator=torch.Generator().manual_seed(3)))

    class Logger(lightning.loggers.logger.Logger):
        name, version = "lines", 0

        def __init__(self):
            super().__init__()
            self.lines = []

        def log_metrics(self, metrics, step=None):
            self.lines.append(dict(metrics))

        def log_hyperparams(self, *_, **__):
            pass

    class First(lightning.Callback):
        """A callback that comes before the constraints."""

        def __init__(self):
            self.outputs = []

        def on_train_batch_end(self, trainer, pl_module, outputs, *_):
            self.outputs.append(outputs["loss"].item())

    def returned(loss):
        return {"loss": loss, "other": 1} if kind == "dict" else loss

    def optimizer(parameters):
        if kind == "closures":  # its line search compares the values that closures return
            return torch.optim.LBFGS(parameters, lr=0.1, max_iter=4, line_search_fn="strong_wolfe")
        return torch.optim.SGD(parameters, lr=0.1)

    def run(constrained):
        module = module_of(lightning, optimizer, returned)
        callbacks = [LightningConstraints(*both(module.model))] if constrained else []
        first, logger = First(), Logger()
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", logger=logger, enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
            callbacks=[first, *callbacks], accumulate_grad_batches=accumulate, log_every_n_steps=1,
        )  # fmt: skip
        trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
        assert "training_step" not in vars(module)
        assert first.outputs == module.outputs
        return module, [line for line in logger.lines if "loss" in line]

    module, logs = run(True)
    plain, plain_logs = run(False)
    if kind != "closures":  # which go further than one pass in the first step
        assert logs[0]["loss"] == plain_logs[0]["loss"]
        assert module.outputs[0] == plain.outputs[0]
    last_of_steps = module.outputs[accumulate - 1 :: accumulate]
    assert [line["loss"] / accumulate for line in logs] == pytest.approx(last_of_steps)

    byhand = gpt2().train()
    constraints = [constraint.start() for constraint in both(byhand)]
    steps, totals = optimizer(byhand.parameters()), []
    for i, ids in enumerate(batches):

        def closure(ids=ids):
            if accumulate == 1:
                steps.zero_grad()
            loss = byhand(input_ids=ids, labels=ids).loss
            total = loss + sum(constraint.penalty() for constraint in constraints)
            totals.append(total.item())
            (total / accumulate).backward()
            return total / accumulate

        if (i + 1) % accumulate:
            closure()
        else:
            steps.step(closure)
            steps.zero_grad()
            line = logs[i // accumulate]
            assert {ORTHOGONALITY, LOCAL} <= set(line)
            parts = line[ORTHOGONALITY] + line[LOCAL]
            assert parts > 0
            assert line["loss"] + parts == pytest.approx(totals[-1], rel=1e-4)
    assert same(weights(module.model), weights(byhand))


def test_lightning_is_left_as_it_was(tmp_path):
    """A training_step of the object itself, as torch.compile sets one, is put back."""
    lightning = pytest.importorskip("lightning.pytorch")
    from taut.control import LightningConstraints

    module = module_of(lightning, functools.partial(torch.optim.SGD, lr=0.1), lambda loss: loss)
    own = module.training_step
    vars(module)["training_step"] = own
    trainer = lightning.Trainer(
        max_steps=1, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        callbacks=[LightningConstraints(control.Orthogonality(module.model, "LF"))],
    )  # fmt: skip
    batches = list(torch.randint(0, 60, (2, 2, 7)))
    trainer.fit(module, torch.utils.data.DataLoader(batches, batch_size=None))
    assert vars(module)["training_step"] is own
