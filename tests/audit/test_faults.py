"""Faults of the machine: what ends an audit says why and what to do, and nothing is lost."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from taut import audit  # noqa: E402
from taut._base.settings import AuditSettings  # noqa: E402
from taut.audit import Auditor, Record, merge_files  # noqa: E402
from taut.audit import resume as _resume  # noqa: E402
from taut.audit.out_of_memory import is_out_of_memory, memory_explained  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

nn = torch.nn
OWN = """
import os, time, torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a = nn.MultiheadAttention(8, 2, batch_first=True)
    def forward(self, x):
        time.sleep(float(os.environ.get("SLOW", 0)))
        return self.a(x, x, x)[0]

def model():
    return Model().eval()

def large():
    return nn.Linear(1 << 24, 1 << 24)

def greedy():
    class Greedy(Model):
        def forward(self, x):
            torch.empty(1 << 50)
    return Greedy()
"""


@pytest.fixture
def own(tmp_path):
    (tmp_path / "mine.py").write_text(OWN)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 5, 8)).astype("f4"))
    return tmp_path


CALL = ("audit", "mine:model", "--data", "x.npy", "--batch-size", "2", "--epsilons", "")


# Memory.


def allocator():
    try:
        torch.empty(1 << 60, dtype=torch.uint8)
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB."),
        RuntimeError("MPS backend out of memory (MPS allocated: 5.00 GB)"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        ValueError("cannot load the weights of 'x': CUDA out of memory."),
        allocator(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_of_allocators_are_recognised(error):
    assert is_out_of_memory(error)
    words = r"out of memory: try a batch size of 4 \(--batch-size\); .*--max-length.*bfloat16.*auto"
    with pytest.raises(MemoryError, match=words) as caught, memory_explained(AuditSettings()):
        raise error
    assert caught.value.__cause__ is error
    assert str(error)[:40] in str(caught.value)  # how much was asked for


def test_other_errors_are_left_alone():
    for error in (ValueError("this is not it"), RuntimeError("shape"), OSError(28, "No space")):
        with pytest.raises(type(error)) as caught, memory_explained(AuditSettings()):
            raise error
        assert caught.value is error


def test_nothing_is_advised_that_is_done_already():
    settings = AuditSettings(batch_size=1, dtype="bfloat16", device="auto", max_length=5)
    with pytest.raises(MemoryError) as caught, memory_explained(settings):
        raise MemoryError
    assert str(caught.value) == "out of memory: try texts of fewer than 5 tokens (--max-length)"


@pytest.mark.parametrize("what", ["large", "greedy"])
@pytest.mark.parametrize("more", [(), ("--shard", "1/2")])
def test_a_model_that_does_not_fit(own, what, more):
    """When it is loaded, and when it is run."""
    done = taut("audit", f"mine:{what}", "--data", "x.npy", *more, cwd=own)
    assert done.returncode == 2
    assert done.stderr.startswith("taut audit: out of memory: try a batch size of 4")
    assert "--device auto" in done.stderr
    assert not list(own.glob("taut-audit/*.json"))


def test_memory_that_ends_on_the_way_loses_nothing(own, monkeypatch):
    real, left = Auditor.add, [3]

    def add(*args, **given):
        if not left[0]:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        left[0] -= 1
        return real(*args, **given)

    with monkeypatch.context() as patch:
        patch.setattr(Auditor, "add", add)
        done = taut(*CALL, cwd=own)
    assert done.returncode == 2
    assert "out of memory: try a batch size of 1" in done.stderr
    (file,) = (own / "taut-audit").glob("*.json")
    assert Record.load(file).samples == 6
    assert taut(*CALL, cwd=own).returncode == 0
    assert Record.load(file).samples == 20


LITTLE = """
import resource, sys
import torch, transformers
from taut.cli import main
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (400 << 20), resource.RLIM_INFINITY))
main()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="needs Linux")
def test_little_memory_in_earnest(own):
    """The system itself refuses: a batch of 8192 tokens has scores of 4 GB."""
    np.save(own / "long.npy", np.zeros((1, 16384, 8), dtype="f4"))
    done = subprocess.run(
        [sys.executable, "-c", LITTLE, "audit", "mine:model", "--data", "long.npy"],
        capture_output=True, text=True, cwd=own, timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert "taut audit: out of memory: try" in done.stderr
    assert "Traceback" not in done.stderr


# The disk.


def test_a_disk_that_fills_up_on_the_way(own, monkeypatch):
    """What was saved before stays, the command says so, and goes on when there is room."""
    real, left = os.fsync, [3]

    def fsync(stream):
        if not left[0]:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left[0] -= 1
        return real(stream)

    monkeypatch.setattr(_resume, "SAVE_EVERY", -1.0)  # after every batch
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        done = taut(*CALL, "--shard", "2/2", cwd=own)
    assert done.returncode == 2
    assert "No space left on device. What was saved before is kept" in done.stderr
    assert "run it again to continue" in done.stderr
    (file,) = (own / "taut-audit").iterdir()  # no half files, no lock
    assert Record.load(file).samples == 6
    again = taut(*CALL, "--shard", "2/2", cwd=own)
    assert again.returncode == 0, again.stderr
    assert Record.load(file).samples == 10


def test_a_disk_without_room_for_a_merged_record(own, monkeypatch):
    for number in (1, 2):
        assert taut(*CALL, "--shard", f"{number}/2", cwd=own).returncode == 0
    shards = sorted((own / "taut-audit").glob("*.json"))
    first = merge_files(shards[:1]).record.file
    before = {file.name: file.read_bytes() for file in (own / "taut-audit").iterdir()}

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    done = taut("merge", "taut-audit", cwd=own)
    assert done.returncode == 2
    assert f"taut merge: cannot write {first.relative_to(own)}: No space left" in done.stderr
    assert {file.name: file.read_bytes() for file in (own / "taut-audit").iterdir()} == before


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True
    )
    if made.returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_small_disk_in_earnest(own, small_disk):
    done = taut(*CALL, "--shard", "1/3", "--output-dir", small_disk, cwd=own)
    assert done.returncode == 0, done.stderr
    (kept,) = small_disk.iterdir()
    before = kept.read_bytes()
    (small_disk / "of others").write_bytes(bytes((64 << 10) - 4096 - len(before) // 4096 * 4096))
    full = taut(*CALL, "--shard", "2/3", "--output-dir", small_disk, cwd=own)
    assert full.returncode == 2
    assert "No space left on device" in full.stderr
    assert "Traceback" not in full.stderr
    assert kept.read_bytes() == before
    (small_disk / "of others").unlink()
    for number in (2, 3):  # and there is room for no third
        done = taut(*CALL, "--shard", f"{number}/3", "--output-dir", small_disk, cwd=own)
        assert "Traceback" not in done.stderr
        assert done.returncode in (0, 2)
    assert kept.read_bytes() == before


# Processes.


def test_a_killed_shard_goes_on(own):
    """SIGKILL in the middle: the record of what was seen is whole, and the shard goes on."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "SLOW": "0.2"}
    code = ("from taut.audit import resume; resume.SAVE_EVERY = -1.0\n"
            "from taut.cli import main; main()")  # fmt: skip
    call = [sys.executable, "-c", code, *CALL, "--shard", "1/2"]
    running = subprocess.Popen(call, cwd=own, env=env, stderr=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL)  # fmt: skip
    folder = own / "taut-audit"
    while running.poll() is None and not list(folder.glob("*.json")):
        time.sleep(0.02)
    running.kill()
    assert running.wait(60) < 0
    (file,) = folder.glob("*.json")
    stopped = Record.load(file)
    assert 0 < stopped.samples < 10
    assert not stopped.shard.complete
    for number in (1, 2):
        assert taut(*CALL, "--shard", f"{number}/2", cwd=own).returncode == 0
    merged = taut("merge", "taut-audit", "--json", cwd=own)
    assert merged.returncode == 0, merged.stderr
    whole = taut(*CALL, "--output-dir", "whole", "--json", cwd=own)
    assert merged.stdout == whole.stdout


def test_two_runs_into_one_folder(own):
    """Of different settings: each has its own record, and a merge tells them apart."""
    for seed in ("0", "1"):
        assert taut(*CALL, "--seed", seed, cwd=own).returncode == 0
    assert len(audit.records_in(own / "taut-audit")) == 2
    done = taut("merge", "taut-audit", cwd=own)
    assert done.returncode == 2
    assert "not of one run: they differ in settings.seed: " in done.stderr
    assert "There are 2 runs in 2 records" in done.stderr
