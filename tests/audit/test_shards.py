"""Shards: how they are asked for, and that all of them together are the record of one run."""

from __future__ import annotations

import itertools
import random
import shutil

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from taut import audit  # noqa: E402
from taut._base.lock import locked  # noqa: E402
from taut.audit import Auditor, Record, Shard, merge, run  # noqa: E402
from taut.audit.shard import JOB_ARRAYS, read_shard  # noqa: E402
from tests.helpers.audit_processes import LINES, options, processes, same, small_bert  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

nn = torch.nn
SLURM = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_MIN": "4", "SLURM_ARRAY_TASK_MAX": "10",
         "SLURM_ARRAY_TASK_STEP": "3", "SLURM_ARRAY_TASK_COUNT": "3"}  # fmt: skip


@pytest.mark.parametrize(
    ("given", "variables", "expected"),
    [
        (None, {}, None),
        ("1/4", {}, Shard(1, 4)),
        (" 4 / 4 ", {}, Shard(4, 4)),
        ((3, 16), {}, Shard(3, 16)),
        ("1/1", {}, None),  # all of the data
        ("auto", SLURM, Shard(2, 3)),
        ("auto", {"SLURM_ARRAY_TASK_ID": "0", "SLURM_ARRAY_TASK_MIN": "0",
                  "SLURM_ARRAY_TASK_MAX": "15", "SLURM_ARRAY_TASK_COUNT": "16"}, Shard(1, 16)),
        ("auto/16", SLURM, Shard(7, 16)),  # some tasks of an array are run again
        ("auto", {"SGE_TASK_ID": "undefined", **SLURM}, Shard(2, 3)),
        ("auto", {"SGE_TASK_ID": "5", "SGE_TASK_FIRST": "1", "SGE_TASK_LAST": "9",
                  "SGE_TASK_STEPSIZE": "2"}, Shard(3, 5)),
        ("auto", {"LSB_JOBINDEX": "8", "LSB_JOBINDEX_END": "8"}, Shard(8, 8)),
        ("auto/8", {"PBS_ARRAY_INDEX": "8"}, Shard(8, 8)),
        ("auto/8", {"PBS_ARRAYID": "1"}, Shard(1, 8)),
        ("auto", {"AWS_BATCH_JOB_ARRAY_INDEX": "0", "AWS_BATCH_JOB_ARRAY_SIZE": "4"}, Shard(1, 4)),
        ("auto/4", {"JOB_COMPLETION_INDEX": "3"}, Shard(4, 4)),
    ],
)  # fmt: skip
def test_how_a_shard_is_given(given, variables, expected):
    assert read_shard(given, variables) == expected


@pytest.mark.parametrize(
    ("given", "variables", "words"),
    [
        ("0/0", {}, "no shard 0 of 0: shards are counted from 1"),
        ("0/4", {}, "counted from 1"),
        ("5/4", {}, "no shard 5 of 4"),
        ((0, 4), {}, "counted from 1"),
        ((1,), {}, "number, count"),
        ((1, 2.5), {}, "shard"),
        ("-1/4", {}, "shard must be i/n"),
        ("1", {}, "such as 1/4 to 4/4"),
        ("1/4/2", {}, "shard must be i/n"),
        ("a/b", {}, "shard must be i/n"),
        ("", {}, "shard must be i/n"),
        ("1/99999999999999999999", {}, "shard must be i/n"),
        ("auto", {}, "not a task of a job array .*SLURM_ARRAY_TASK_ID"),
        ("auto", {"LSB_JOBINDEX": "0"}, "not a task of a job array"),
        ("auto", {"PBS_ARRAY_INDEX": "3"}, "PBS does not say how many tasks.*auto/n"),
        ("auto/4", {"PBS_ARRAY_INDEX": "0"}, "needs an array with the tasks 1 to 4"),
        ("auto/4", {"PBS_ARRAY_INDEX": "5"}, "needs an array with the tasks 1 to 4"),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_COUNT": "2"}, "not evenly spaced"),
        ("auto", {**SLURM, "SLURM_ARRAY_TASK_ID": "8"}, "not evenly spaced"),
    ],
)
def test_shards_that_are_not_there(given, variables, words):
    with pytest.raises((ValueError, TypeError), match=words):
        read_shard(given, variables)


@pytest.mark.parametrize("total", [1, 2, 3, 7, 30])
def test_every_batch_is_in_one_shard(total):
    batches = [(first, first + 2) for first in range(0, 22, 2)]
    parts = [Shard(number, total).of(batches) for number in range(1, total + 1)]
    assert sorted(itertools.chain(*parts)) == batches
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def whole(model, tmp_path_factory):
    record = run(model, lines(), name="bert", settings=options(logits=None),
                 folder=tmp_path_factory.mktemp("whole"))  # fmt: skip
    assert record.samples == len(LINES)
    return record


def lines():
    from taut.models import Samples

    return Samples("text", LINES, "")


def shard_of(model, folder, number, total, **more):
    asked = options(**more)
    return run(model, lines(), name="bert", folder=folder, shard=(number, total), settings=asked)


@pytest.mark.parametrize("total", [2, 3, 12])
def test_shards_are_the_record_of_one_run(model, whole, tmp_path, total):
    numbers = list(range(1, total + 1))
    random.Random(total).shuffle(numbers)
    shards = [shard_of(model, tmp_path, number, total) for number in numbers]
    assert all(shard.shard.complete and not shard.complete for shard in shards)
    merged = merge(shards)
    assert merged.to_json() == whole.to_json()  # every number, to the last bit
    assert merge(tmp_path).to_json() == whole.to_json()  # from the files
    assert {shard.shard for shard in shards} == {
        Shard(n, total, True) for n in numbers
    }  # untouched


@pytest.mark.slow
def test_shards_of_shards_of_processes_and_stops(model, whole, tmp_path):
    """Two processes that are killed, one that goes on, one that is interrupted: all in shards."""
    stop = {"rank": 1, "at": "batch", "after": 1}
    processes(model, tmp_path, 2, stop=stop, shard="1/2")
    assert list(tmp_path.glob("*.shard-1-of-2*.json"))
    processes(model, tmp_path, 1, shard="1/2")
    gently = {"rank": 0, "at": "batch", "after": 3, "gently": True}
    processes(model, tmp_path, 1, stop=gently, shard="2/2")
    parts = merge(tmp_path)
    assert not parts.complete
    assert parts.samples < len(LINES)
    processes(model, tmp_path, 2, shard="2/2")
    assert len(list(tmp_path.glob("*.json"))) == 2
    same(merge(tmp_path).to_dict(), whole.to_dict())


def test_a_shard_goes_on_only_with_its_own_samples(model, tmp_path, capsys):
    """A file that was given the name of another shard is set aside."""
    first = shard_of(model, tmp_path, 1, 3)
    moved = first.file.with_name(first.file.name.replace("shard-1", "shard-2"))
    shutil.copy(first.file, moved)
    second = shard_of(model, tmp_path, 2, 3)
    assert "are not of shard 2 of 3" in capsys.readouterr().err
    assert second.shard == Shard(2, 3, True)
    assert not audit.merge([first, second]).complete


def test_the_same_shard_twice_at_once(model, tmp_path):
    file = shard_of(model, tmp_path, 1, 3).file
    with locked(file), pytest.raises(ValueError, match="works on"):
        shard_of(model, tmp_path, 1, 3)
    shard_of(model, tmp_path, 2, 3)  # another one does not wait


def test_a_shard_that_is_done_is_not_measured_again(model, tmp_path, monkeypatch):
    shard_of(model, tmp_path, 1, 3)
    monkeypatch.setattr(Auditor, "add", lambda *_, **__: pytest.fail("it was there"))
    again = shard_of(model, tmp_path, 1, 3)
    assert again.shard.complete


def test_shards_in_memory_and_without_samples():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    data = [torch.randn(size, 5, 8) for size in (1, 2, 3)]
    shards = [run(layer, data, shard=f"{number}/5") for number in range(1, 6)]
    assert [shard.samples for shard in shards] == [1, 2, 3, 0, 0]
    merged = merge(shards)
    assert merged.complete
    assert merged.heads == run(layer, data).heads
    with pytest.raises(TypeError, match="a shard, give data by name"):
        run(layer, iter(data), shard=(1, 2))


def test_a_model_that_cannot_be_identified_has_no_shards():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.MultiheadAttention(4, 1, batch_first=True)
            self.lost = nn.Parameter(torch.empty(2, device="meta"))

        def forward(self, x):
            return self.a(x, x, x)[0]

    with pytest.raises(ValueError, match=r"cannot be identified .*audit it without a shard"):
        run(Odd().eval(), [torch.randn(1, 3, 4)] * 2, shard=(1, 2))


@pytest.fixture
def own(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def model():\n"
        "    torch.manual_seed(0)\n"
        "    return torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()\n"
    )
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(7, 5, 8)).astype("f4"))
    return tmp_path


def test_the_command(own):
    call = ("audit", "mine:model", "--data", "x.npy", "--batch-size", 2)
    array = {
        "SLURM_ARRAY_TASK_MIN": "0",
        "SLURM_ARRAY_TASK_MAX": "2",
        "SLURM_ARRAY_TASK_COUNT": "3",
    }
    for task in "012":
        done = taut(*call, "--shard", "auto", cwd=own, **array, SLURM_ARRAY_TASK_ID=task)
        assert done.returncode == 0, done.stderr
        assert f"(shard {int(task) + 1} of 3)" in done.stdout
        assert "When all 3 shards are done: taut merge taut-audit" in done.stdout
    listed = taut("ls", cwd=own).stdout
    assert "mine:model, shard 2 of 3, 2 samples of x.npy, mean 0." in listed
    assert listed.count("(exact), complete") == 3
    assert not list((own / "taut-audit").glob("*.html"))
    empty = taut(*call, "--shard", "5/5", cwd=own)
    assert (empty.returncode, empty.stdout) == (0, "")
    assert "shard 5 of 5 has no samples" in empty.stderr
    wrong = taut(*call, "--shard", "5/4", cwd=own)
    assert wrong.returncode == 2
    assert "no shard 5 of 4" in wrong.stderr
    merged = taut("merge", "taut-audit", cwd=own)
    assert merged.returncode == 0, merged.stderr
    alone = taut(*call, "--output-dir", "alone", "--json", cwd=own)
    (file,) = (f for f in (own / "taut-audit").glob("*.json") if "shard" not in f.name)
    assert file.read_text() + "\n" == alone.stdout
    assert file.with_suffix(".html").exists()


def test_help_names_every_scheduler_that_is_read():
    text = taut("audit", "--help", COLUMNS="200").stdout
    assert "counted from 1" in text
    assert "job array" in text
    page = (audit_docs() / "many_machines.md").read_text(encoding="utf-8")
    for array in JOB_ARRAYS:
        assert array.scheduler in page
        assert array.task in page


def audit_docs():
    from tests.helpers.places import DOCS

    return DOCS


def test_ctrl_c_in_a_shard_says_3(own, monkeypatch):
    real, left = Auditor.add, [1]

    def stop(*args, **given):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        return real(*args, **given)

    monkeypatch.setattr(Auditor, "add", stop)
    call = ("audit", "mine:model", "--data", "x.npy", "--batch-size", 2, "--shard", "1/2")
    done = taut(*call, cwd=own)
    assert done.returncode == 3
    (file,) = (own / "taut-audit").glob("*.json")
    assert Record.load(file).shard == Shard(1, 2, False)
    listed = taut("ls", cwd=own).stdout
    assert "shard 1 of 2, 2 samples of x.npy" in listed
    assert "(exact), partial" in listed
