"""Processes as people start them: torchrun on two nodes, accelerate, and both in a job array.

Two agents on this machine stand for two nodes: they meet at an address, as machines do.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from taut.audit import Record  # noqa: E402
from tests.helpers.command_line import taut  # noqa: E402

pytestmark = pytest.mark.slow  # every process imports PyTorch
OWN = """
import torch
def model():
    torch.manual_seed(0)
    layers = [torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True) for _ in range(2)]
    return torch.nn.Sequential(*layers).eval()
"""
CALL = ("audit", "mine:model", "--data", "x.npy", "--batch-size", "2", "--json")


def prepare(place):
    place.mkdir(exist_ok=True)
    (place / "mine.py").write_text(OWN)
    data = np.random.default_rng(0).normal(size=(23, 5, 8)).astype("f4")
    np.save(place / "x.npy", data)
    return place


@pytest.fixture
def own(tmp_path):
    return prepare(tmp_path)


@pytest.fixture
def whole(own):
    """The record of one process, as it is printed."""
    return taut(*CALL, "--output-dir", "whole", cwd=own).stdout


def start(place, *command):
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", *map(str, command)], cwd=place, env=env, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def ended(running):
    out, error = running.communicate(timeout=300)
    assert running.returncode == 0, error
    return out


def two_nodes(places, *more):
    """What the processes of both nodes print together."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    agent = ("torch.distributed.run", "--nnodes", 2, "--nproc-per-node", 1, "--rdzv-backend",
             "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "audit")  # fmt: skip
    running = [start(place, *agent, "-m", "taut", *CALL, *more) for place in places]
    return "".join(map(ended, running))


def test_torchrun_on_two_nodes(own, whole):
    assert two_nodes([own, own]) == whole
    assert len(list((own / "taut-audit").glob("*.json"))) == 1


def test_two_nodes_with_disks_of_their_own(own, whole, tmp_path):
    """The folder is made on both, and one of them has the record in the end."""
    places = [prepare(tmp_path / name) for name in ("one", "two")]
    assert two_nodes(places) == whole
    (file,) = (file for place in places for file in place.glob("taut-audit/*.json"))
    assert Record.load(file).complete


def test_two_nodes_for_each_shard(own, whole):
    for number in (1, 2):
        two_nodes([own, own], "--shard", f"{number}/2")
    merged = taut("merge", "taut-audit", "--json", cwd=own)
    assert merged.returncode == 0, merged.stderr
    assert merged.stdout == whole


def test_accelerate_launch(own, whole):
    """What starts processes on accelerators; here they work on the CPU."""
    pytest.importorskip("accelerate")
    launch = ("accelerate.commands.launch", "--multi_gpu", "--num_processes", 2, "--num_machines",
              1, "--mixed_precision", "no", "--dynamo_backend", "no")  # fmt: skip
    probe = "import os; print(os.environ['WORLD_SIZE'])"
    (own / "probe.py").write_text(probe)
    assert ended(start(own, *launch, "probe.py")).split() == ["2", "2"]
    assert ended(start(own, *launch, "-m", "taut", *CALL)) == whole
    assert len(list((own / "taut-audit").glob("*.json"))) == 1
