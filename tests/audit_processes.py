"""Audits in processes of their own, which are stopped on purpose; started by a fork server."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import signal
import socket
from pathlib import Path

import pytest

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch", "transformers", "taut.audit._resume", "audit_processes"])
LINES = [f"{first} {second} {third}".strip()
         for first in ("the", "dog") for second in ("cat", "dog", "")
         for third in ("sat", "ran", "the dog", "")][:23]  # fmt: skip


def options(folder, batch_size=2, **more):
    from taut.audit._command import Options

    given = {
        "data": [], "column": None, "tokenizer": None, "dtype": "auto", "device": "cpu",
        "batch_size": batch_size, "max_length": 256, "limit": 256, "norms": [1.0, 2.0, math.inf],
        "epsilons": [0.01, 1.0], "threshold": 0.2, "logits": None, "seed": 0, "revision": None,
        "output_dir": Path(folder), "as_json": True, "show": 1, "trust_remote_code": False,
        "sampled": 9, "rows": 2,
    }  # fmt: skip
    return Options(**{**given, **more})


def _die(*_):
    os.kill(os.getpid(), signal.SIGKILL)


def _interrupt(*_):
    raise KeyboardInterrupt


def _stop(rank, stop):
    """Stop this process: before a batch, or at some call of a function that writes or removes."""
    if stop is None or stop.get("rank", 0) != rank:
        return
    from taut.audit import Auditor

    owner, name = {
        "batch": (Auditor, "add"),
        "write": (os, "fsync"),
        "written": (os, "replace"),
        "remove": (os, "unlink"),
    }[stop["at"]]
    end = _interrupt if stop.get("gently") else _die
    real, left = getattr(owner, name), [stop.get("after", 0)]

    def counted(*args, **given):
        if left[0] == 0:
            end()
        left[0] -= 1
        return real(*args, **given)

    setattr(owner, name, counted)


def _child(rank, world, port, model, lines, asked, stop, answer):
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port), HF_HUB_OFFLINE="1",
    )  # fmt: skip
    import torch

    torch.set_num_threads(1)
    from taut.audit import _resume
    from taut.audit._data import Samples

    _resume.SAVE_EVERY = -1.0  # after every batch
    _stop(rank, stop)
    record, file = _resume.audited(str(model), "bert", Samples("text", lines, ""), asked)
    answer.put((rank, None if record is None else record.to_dict(), str(file)))


def processes(model, folder, world, *, stop=None, lines=None, **more):
    """Run an audit in some processes; what the first one gives, or None if it was stopped."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answer = SERVER.Queue()
    asked, lines = options(folder, **more), LINES if lines is None else lines
    running = [
        SERVER.Process(target=_child, args=(r, world, port, model, lines, asked, stop, answer))
        for r in range(world)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(90)
    if any(process.is_alive() for process in running):
        for process in running:
            process.kill()
        pytest.fail("a process waits for ever")
    found = {}
    while not answer.empty():
        rank, record, _ = answer.get()
        found[rank] = record
    return found.get(0)


def same(mine, theirs):
    """Two records say the same; sums may have been added in another order."""
    for key in ("samples", "complete", "tokens", "missed", "model", "data", "settings"):
        assert mine[key] == theirs[key], key
    assert len(mine["layers"]) == len(theirs["layers"])
    for a, b in zip(mine["layers"], theirs["layers"], strict=True):
        for key in ("path", "call", "counts", "maxima", "places", "histograms", "affinity"):
            assert a[key] == b[key], (a["path"], key)
        for key in a["sums"]:
            assert a["sums"][key] == pytest.approx(b["sums"][key], rel=1e-9)
        one, two = dict(a["grid"]), dict(b["grid"])
        for x, y in zip(one.pop("shares"), two.pop("shares"), strict=True):
            assert x == pytest.approx(y, rel=1e-9)
        assert one == two
    json.dumps(mine, allow_nan=False)
