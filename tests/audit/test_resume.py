"""Whatever stops an audit and however it goes on, its record is that of one run without a stop."""

from __future__ import annotations

import errno
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut._base.lock import locked  # noqa: E402
from taut.audit import Auditor, Record, run  # noqa: E402
from taut.audit import resume as _resume  # noqa: E402
from taut.audit.auditor import fresh_record  # noqa: E402
from taut.audit.part_files import part_of  # noqa: E402
from taut.audit.processes import Processes  # noqa: E402
from taut.models.batches import batches  # noqa: E402
from taut.models.load import load  # noqa: E402
from taut.models.samples import Samples  # noqa: E402
from taut.models.tokenizer import tokenizer_of  # noqa: E402
from tests.helpers.architectures import tiny  # noqa: E402
from tests.helpers.audit_processes import LINES, options, processes, same, small_bert  # noqa: E402

nn = torch.nn


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    found = processes(model, tmp_path_factory.mktemp("whole"), 1)
    assert found["samples"] == len(LINES)
    return found


def left(folder):
    """The files there, without what a killed process had not written to its end."""
    return [file for file in folder.iterdir() if file.suffix != ".part"]


CASES = [(2, 1, True), (1, 2, False)]
MORE = [(3, 2, False), (2, 1, False), (1, 2, True), (3, 2, True), (2, 3, True)]


@pytest.mark.parametrize(
    ("first", "second", "gently"),
    CASES + [pytest.param(*case, marks=pytest.mark.slow) for case in MORE],
)
def test_resumed_with_other_processes(model, whole, tmp_path, first, second, gently):
    stop = {"rank": first - 1, "at": "batch", "after": 2, "gently": gently}
    processes(model, tmp_path, first, stop=stop)
    assert list(tmp_path.glob("*.json"))
    same(processes(model, tmp_path, second), whole)
    assert len(left(tmp_path)) == 1  # no parts, no locks


@pytest.mark.slow
def test_resumed_again_and_again(model, whole, tmp_path):
    for world, rank, after in ((3, 1, 1), (2, 0, 1), (1, 0, 2), (3, 2, 0)):
        stop = {"rank": rank, "at": "batch", "after": after}
        processes(model, tmp_path, world, stop=stop)
    same(processes(model, tmp_path, 2), whole)
    assert len(left(tmp_path)) == 1


SOME = [("write", 0), ("remove", 1)]
REST = [("write", 1), ("write", 4), ("written", 0), ("written", 1), ("remove", 0)]


@pytest.mark.parametrize(
    ("at", "after"), SOME + [pytest.param(*case, marks=pytest.mark.slow) for case in REST]
)
def test_killed_while_files_change(model, whole, tmp_path, at, after):
    processes(model, tmp_path, 2, stop={"rank": 1, "at": "batch", "after": 3})
    processes(model, tmp_path, 2, stop={"rank": after % 2, "at": at, "after": after})
    same(processes(model, tmp_path, 1), whole)
    assert len(left(tmp_path)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_killed_at_random(model, whole, tmp_path, seed):
    source = random.Random(seed)
    for _ in range(4):
        world = source.randint(1, 3)
        stop = {
            "rank": source.randrange(world), "after": source.randrange(6),
            "at": source.choice(["batch", "write", "written", "remove"]),
            "gently": source.random() < 0.3,
        }  # fmt: skip
        processes(model, tmp_path, world, stop=stop)
    same(processes(model, tmp_path, source.randint(1, 3)), whole)
    assert len(left(tmp_path)) == 1


SLOW = """
import os, time, torch
from torch import nn
class Slow(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.MultiheadAttention(8, 2, batch_first=True)
    def forward(self, x):
        time.sleep(0.3)
        return self.a(x, x, x)[0]
def model():
    open(f"process-{os.getpid()}", "w").close()
    return Slow().eval()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_torchrun_stopped_and_one_process_after_it(tmp_path, how):
    (tmp_path / "mine.py").write_text(SLOW)
    data = np.random.default_rng(0).normal(size=(120, 5, 8)).astype("f4")
    np.save(tmp_path / "x.npy", data)
    call = ["-m", "taut", "audit", "mine:model", "--data", "x.npy", "--batch-size", "2"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = subprocess.Popen(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         *call],
        cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    folder = tmp_path / "taut-audit"
    while running.poll() is None and len(list(folder.glob("*.json"))) < 2:
        time.sleep(0.1)
    running.send_signal(how)
    if how == signal.SIGKILL:  # torchrun's processes have sessions of their own, and live on
        for process in tmp_path.glob("process-*"):
            os.kill(int(process.name.removeprefix("process-")), how)
    running.wait(60)
    (file,) = (f for f in folder.glob("*.json") if ".part-" not in f.name)
    assert not Record.load(file).complete
    done = subprocess.run(
        [sys.executable, *call, "--json"], cwd=tmp_path, env=env, capture_output=True, text=True,
        timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["seen"] == [[0, 120]]
    assert sorted({f.suffix for f in folder.iterdir()} - {".html"}) == [".json"]
    assert len(list(folder.glob("*.json"))) == 1
    net = runpy.run_path(str(tmp_path / "mine.py"))["Slow"]().eval()
    alone = Auditor(net, threshold=0.45)
    for first in range(0, 120, 2):
        alone.add(torch.from_numpy(data[first : first + 2]), first=first)
    for mine, other in zip(found["layers"], alone.record.to_dict()["layers"], strict=True):
        for key in ("counts", "maxima", "places", "histograms"):
            assert mine[key] == other[key]


# From here on in this process: files as stopped processes leave them, made by hand.


def audit_here(model, folder, lines=LINES, **more):
    samples = Samples("text", lines, "")
    record = run(model, samples, name="bert", folder=folder, settings=options(**more))
    return record, record.file


@pytest.fixture
def parts(model, whole, tmp_path):
    """The record of a run in three files: itself and two parts, by batches of 2 samples."""
    record, file = audit_here(model, tmp_path)
    file.unlink()
    network = load(str(model))
    reader = tokenizer_of(str(model))
    samples = Samples("text", LINES, "")
    asked = options()
    files = []
    for rank in range(3):
        fresh = replace(record, layers=[], seen=[], tokens={}, complete=False)
        auditor = Auditor(network, fresh, settings=asked)
        mine = range(2 * rank, len(LINES), 6)
        for batch in batches(samples, network, "", mine, size=2, max_length=256, reader=reader):
            auditor.add(batch.inputs, tokens=batch.tokens, first=batch.first)
        files.append(part_of(file, rank))
        fresh.save(files[-1])
    return files


def test_whatever_lies_in_the_folder_is_put_together(model, whole, tmp_path, parts, monkeypatch):
    def stop(*_, **__):
        raise AssertionError("all of it was there")

    monkeypatch.setattr(Auditor, "add", stop)
    parts[1].rename(parts[1].with_name(parts[1].name.replace("part-1", "part-71")))
    record, file = audit_here(model, tmp_path)
    same(record.to_dict(), whole)
    assert list(tmp_path.iterdir()) == [file]
    same(Record.load(file).to_dict(), whole)


@pytest.mark.parametrize(
    ("which", "damage"), [(0, b""), (1, b"{"), (1, b"not json at all"), (0, b'{"taut_audit": 4}')]
)
def test_a_damaged_part_is_set_aside(model, whole, tmp_path, parts, capsys, damage, which):
    parts[which].write_bytes(damage)
    record, file = audit_here(model, tmp_path)
    same(record.to_dict(), whole)
    said = capsys.readouterr().err
    assert f"{parts[which].name} cannot be used and is set aside as" in said
    aside = tmp_path / f"{parts[which].name}.damaged-1"
    assert aside.read_bytes() == damage
    assert sorted(tmp_path.iterdir()) == sorted([file, aside])


def test_parts_that_do_not_belong_are_set_aside(model, whole, tmp_path, parts, capsys):
    other = Record.load(parts[1])
    other.settings["seed"] = 7
    other.save(parts[1])
    odd = Record.load(parts[2])
    odd.seen = [(first + 1, end + 1) for first, end in odd.seen[:-1]] + odd.seen[-1:]
    odd.save(parts[2])
    record, _ = audit_here(model, tmp_path)
    same(record.to_dict(), whole)
    said = capsys.readouterr().err
    assert "another run, which differs in settings.seed: 7, 0" in said
    assert "not whole batches" in said


def test_parts_that_overlap_count_once(model, whole, tmp_path, parts, capsys):
    both = Record.load(parts[1])
    both.merge(Record.load(parts[2]))
    both.save(parts[1])  # as if a process was killed before it could remove the other
    record, _ = audit_here(model, tmp_path)
    same(record.to_dict(), whole)
    assert "share samples" not in capsys.readouterr().err


def test_two_commands_at_once(model, whole, tmp_path):
    """The second one says who is at work, and what the first one does is not touched."""
    _, file = audit_here(model, tmp_path)
    file.unlink()
    with locked(file), pytest.raises(ValueError, match=f"process {os.getpid()} on .* works on"):
        audit_here(model, tmp_path)
    assert list(tmp_path.iterdir()) == []
    file.with_suffix(".lock").write_text("process 1 on a machine that was switched off")
    same(audit_here(model, tmp_path)[0].to_dict(), whole)
    assert list(tmp_path.iterdir()) == [file]


def test_records_of_the_same_samples_are_not_merged():
    net, inputs = tiny("gpt2")
    auditor = Auditor(net, epsilons=[])
    auditor.add(inputs, first=4)
    auditor.add(inputs)  # after the last
    auditor.add(inputs, first=0)
    assert auditor.record.seen == [(0, 2), (4, 8)]
    with pytest.raises(ValueError, match="samples 1 are in the record already"):
        auditor.add({key: value[:1] for key, value in inputs.items()}, first=1)
    other = Auditor(net, epsilons=[])
    other.add(inputs, first=2)
    before = auditor.record.to_dict()
    with pytest.raises(ValueError, match=r"same samples \(0 to 1, 4 to 7\)"):
        auditor.record.merge(Record(**vars(auditor.record)))
    assert auditor.record.to_dict() == before
    auditor.record.merge(other.record)
    assert auditor.record.seen == [(0, 8)]


def test_layers_have_one_order_whatever_comes_first():
    """A layer that only some batches reach stands where one process alone would put it."""

    class Sometimes(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.a, self.b, self.c = (
                nn.MultiheadAttention(4, 1, batch_first=True) for _ in range(3)
            )

        def forward(self, x):
            x = self.a(x, x, x)[0]
            if len(x) > 1:
                x = self.b(x, x, x)[0]
            return self.c(x, x, x)[0]

    net = Sometimes().eval()
    data = [torch.randn(1, 3, 4), torch.randn(2, 3, 4)]
    alone = Auditor(net)
    for first, x in enumerate(data):
        alone.add(x, first=first)
    turned = Auditor(net)
    for first in (1, 0):
        turned.add(data[first], first=first)
    names = [layer.path for layer in alone.record.layers]
    assert names == ["a", "c", "b"]
    assert [layer.path for layer in turned.record.layers] == names


def test_processes_that_loaded_different_models_say_so():
    """Weights that are drawn without a seed: their records could not be put together."""

    class Two(Processes):
        def all(self, value):
            return [value, fresh_record(nn.Linear(2, 2), "m")]

    with pytest.raises(ValueError, match="different models or data, which differ in weights: is"):
        _resume._agree(fresh_record(nn.Linear(2, 2), "m"), Two(0, 2))


def test_a_folder_without_locks(tmp_path, monkeypatch, capsys):
    def none(_):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("taut._base.lock._take", none)
    with locked(tmp_path / "a.json"):
        assert list(tmp_path.iterdir()) == []
    assert "has no file locks: do not run the same command twice" in capsys.readouterr().err
