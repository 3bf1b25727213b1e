"""What the trackers of Hugging Face's ``report_to`` hold after a training that was monitored.

Each is read back from the files that it wrote; none needs a server or the network.
"""

from __future__ import annotations

import json
import sqlite3
import struct

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from taut import control  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # trackers warn of much
STEPS = 4


def tensorboard(folder):
    """The scalars of its event files, as name: {step: value}."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (file,) = folder.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(file), size_guidance={"scalars": 0})
    events.Reload()
    return {
        name: {event.step: event.value for event in events.Scalars(name)}
        for name in events.Tags()["scalars"]
    }


def records(data):
    """The records of a file of wandb: a header of 7 bytes, then a log in blocks as of LevelDB.

    Its package has no reader that lasts from version to version.
    """
    place, block, record = 7, 32768, b""
    while place + 7 <= len(data):
        if block - place % block < 7:  # too short for a header: the rest is padding
            place += block - place % block
            continue
        size, kind = struct.unpack("<HB", data[place + 4 : place + 7])  # after a checksum
        record += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # whole, or its last part
            yield record
            record = b""


def wandb(folder):
    """The history of its offline run; the step is the trainer's, which the charts are over."""
    from wandb.proto.wandb_internal_pb2 import Record

    (file,) = folder.rglob("*.wandb")
    found = {}
    for data in records(file.read_bytes()):
        record = Record()
        record.ParseFromString(data)
        items = record.history.item
        row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
        for name, value in row.items():
            found.setdefault(name, {})[row.get("train/global_step")] = value
    return found


def mlflow(folder):
    """The metrics of its database."""
    with sqlite3.connect(folder / "mlflow.db") as database:
        found = {}
        for name, step, value in database.execute("SELECT key, step, value FROM metrics"):
            found.setdefault(name, {})[step] = value
    return found


def trackio(folder):
    """The metrics of its database; the step is the trainer's."""
    (file,) = folder.rglob("*.db")
    found = {}
    with sqlite3.connect(file) as database:
        for (text,) in database.execute("SELECT metrics FROM metrics"):
            row = json.loads(text)
            for name, value in row.items():
                found.setdefault(name, {})[row.get("train/global_step")] = value
    return found


# The reader, and what the Trainer puts before each name.
TRACKERS = {
    "tensorboard": (tensorboard, "train/"),
    "wandb": (wandb, "train/"),
    "mlflow": (mlflow, ""),
    "trackio": (trackio, "train/"),
}


@pytest.mark.parametrize("name", TRACKERS)
def test_a_tracker_holds_every_value_under_its_name(name, tmp_path, monkeypatch):
    for key, value in {
        "TENSORBOARD_LOGGING_DIR": str(tmp_path / "runs"),
        "WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path / 'mlflow.db'}",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
    }.items():  # fmt: skip
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(tmp_path)  # for what writes beside the script
    # Only now: some read their folder when they are imported.
    pytest.importorskip(name, reason=f"the tracker {name} is not installed")

    arguments = transformers.TrainingArguments(
        str(tmp_path / "out"), max_steps=STEPS, per_device_train_batch_size=2, use_cpu=True,
        report_to=name, run_name="tiny", logging_steps=1, save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    data = [{"input_ids": torch.arange(3, 10), "labels": torch.arange(3, 10)}] * 2 * STEPS
    trainer = transformers.Trainer(tiny("gpt2")[0], arguments, train_dataset=data)
    callback = control.HuggingFaceMonitor(trainer, every=1, heads=True)
    trainer.add_callback(callback)
    trainer.train()
    if name == "wandb":
        import wandb as package

        package.finish()  # the Trainer leaves the run open until the process ends

    read, before = TRACKERS[name]
    found = read(tmp_path)
    history = callback.monitor.history
    assert [entry.step for entry in history] == list(range(STEPS))
    assert "taut/layer_01/head_03/largest_score" in history[0].values
    for entry in history:
        for key, value in entry.values.items():
            assert found[before + key][entry.step] == pytest.approx(value, rel=1e-6), key
