"""The monitor warns when gradients grow, whoever clips them, and stays quiet otherwise."""

from __future__ import annotations

import math
import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from taut.control import AttentionWarning, GradientAlarm, Monitor  # noqa: E402
from taut.control.monitor import gradient_alarm  # noqa: E402
from taut.control.monitor.gradient_alarm import due, gradient_norm  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

nn = torch.nn


def first_text(norms):
    """The number of the first reading with a warning, and the warning."""
    alarm = GradientAlarm()
    return next(
        ((i, text) for i, norm in enumerate(norms) if (text := alarm.add(norm)) is not None), None
    )


@pytest.mark.parametrize(
    ("then", "found"),
    [
        ([1.4] * 30, None),
        ([1.6] * 30, 31),  # the second of three decides their median
        ([9.0, 1.0, 1.0] * 5, None),  # single batches may have any gradient
        ([9.0, 9.0, 1.0], 31),
        ([0.1] * 30, None),
        ([1.05**i for i in range(90)], 40),  # 1.55, with one reading after it
        ([1.005**i for i in range(90)], None),
        ([math.nan, 1.0, math.inf], 32),
        ([math.nan, 1.0, 1.0], None),
    ],
)
def test_when_to_warn(then, found):
    told = first_text([1.0] * 30 + then)
    if found is None:
        assert told is None
    else:
        assert told is not None
        assert told[0] == found
        assert "the gradient norm grew" in told[1]


def test_nothing_is_said_before_there_is_something_to_compare_with():
    assert first_text([10.0**i for i in range(22)]) is None
    assert first_text([10.0**i for i in range(23)]) is not None


def test_readings_are_due_every_fifth_step_also_where_steps_are_left_out():
    assert [step for step in range(1, 21) if due(step - 1, step)] == [5, 10, 15, 20]
    assert due(3, 17)
    assert not due(6, 9)


def test_the_norm_of_the_gradients_that_are_there():
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Embedding(3, 2, sparse=True))
    assert gradient_norm(model.parameters()) is None
    model[0].weight.grad = torch.full((2, 2), 2.0)
    assert gradient_norm(model.parameters()) == pytest.approx(4.0)
    model[1](torch.tensor([1, 1])).sum().backward()  # the same row twice: a gradient of 2
    assert gradient_norm(model.parameters()) == pytest.approx(math.sqrt(16 + 8))


def trained(monitor, model, norm_of, steps=150, clip=None, hand=False):
    """Steps whose gradients have the norms that ``norm_of`` says."""
    weight = model.weight
    for step in range(steps):
        weight.grad = torch.zeros_like(weight)
        weight.grad[0, 0] = norm_of(step)
        norm = None
        if clip is not None:
            norm = nn.utils.clip_grad_norm_(model.parameters(), clip)
        monitor.step(gradient_norm=norm if hand else None)


def grows(step):
    return 1.0 if step < 120 else 3.0


@pytest.mark.filterwarnings("ignore:no forward pass")
def test_the_monitor_warns_once():
    model = nn.Linear(2, 2)
    monitor = Monitor(model)
    with pytest.warns(AttentionWarning, match="step 130: the gradient norm grew from 1 to 3"):
        trained(monitor, model, grows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        trained(monitor, model, lambda step: 3.0**step if step < 30 else 1e15)


@pytest.mark.parametrize(("hand", "told"), [(True, True), (False, False)])
def test_clipped_gradients_say_nothing_and_their_norm_does(hand, told):
    model = nn.Linear(2, 2)
    monitor = Monitor(model)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trained(monitor, model, grows, clip=0.5, hand=hand)
    assert any("gradient norm" in str(each.message) for each in found) == told


@pytest.mark.filterwarnings("ignore:no forward pass")
def test_a_quiet_monitor_and_a_closed_one_read_nothing(monkeypatch):
    def refuse(*_):
        raise AssertionError("a gradient was read")

    monkeypatch.setattr("taut.control.monitor.monitor.gradient_norm", refuse)
    model = nn.Linear(2, 2)
    trained(Monitor(model, warn=False, every=1000), model, grows, steps=20)
    closed = Monitor(model, every=1000)
    closed.close()
    trained(closed, model, grows, steps=20)


@pytest.fixture
def soon(monkeypatch):
    """A reading each step, compared with six, so that trainings can be short."""
    for name, value in (("EVERY", 1), ("RECENT", 6)):
        monkeypatch.setattr(gradient_alarm, name, value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*pin_memory:UserWarning")
@pytest.mark.parametrize("limit", [1e-3, 0.0])
def test_the_trainer_of_hugging_face_tells_the_norm_before_it_clips(tmp_path, soon, limit):
    from taut.control import HuggingFaceMonitor

    class Growing(transformers.Trainer):
        def compute_loss(self, *args, **kwargs):
            loss = super().compute_loss(*args, **kwargs)
            return loss * (1.0 if self.state.global_step < 10 else 10.0)

    arguments = transformers.TrainingArguments(
        str(tmp_path), max_steps=14, per_device_train_batch_size=2, use_cpu=True, report_to=[],
        save_strategy="no", disable_tqdm=True, max_grad_norm=limit, learning_rate=1e-6,
    )  # fmt: skip
    data = [{"input_ids": torch.arange(3, 10), "labels": torch.arange(3, 10)}] * 32
    trainer = Growing(tiny("gpt2")[0], arguments, train_dataset=data)
    trainer.add_callback(HuggingFaceMonitor(trainer, every=100))
    with pytest.warns(AttentionWarning, match="the gradient norm grew"):
        trainer.train()
    assert "_get_grad_norm" not in vars(trainer)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_lightning_tells_the_norm_before_it_clips(tmp_path, soon):
    pl = pytest.importorskip("lightning.pytorch", reason="Lightning is not installed")
    from taut.control import LightningMonitor

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

        def training_step(self, batch, _):
            return self.model(batch).sum() * (1.0 if self.global_step < 10 else 10.0)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    trainer = pl.Trainer(
        max_steps=14, accelerator="cpu", logger=False, callbacks=[LightningMonitor(every=100)],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        gradient_clip_val=1e-3, default_root_dir=tmp_path,
    )  # fmt: skip
    torch.manual_seed(0)
    data = torch.utils.data.DataLoader([torch.randn(3, 4, 8)] * 20, batch_size=None)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer.fit(Module(), data)
    assert any("the gradient norm grew" in str(each.message) for each in found)
