"""Audits in processes of their own, which are stopped on purpose; started by a fork server."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shutil
import signal
import socket
import tempfile
from pathlib import Path

import pytest

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["torch", "transformers", "taut.audit.resume", __name__])
LINES = [f"{first} {second} {third}".strip()
         for first in ("the", "dog") for second in ("cat", "dog", "")
         for third in ("sat", "ran", "the dog", "")][:23]  # fmt: skip


def options(batch_size=2, **more):
    """Settings of the audits here."""
    from taut.audit import Settings

    given = {
        "batch_size": batch_size, "norms": [1.0, 2.0, math.inf], "epsilons": [0.01, 1.0],
        "threshold": 0.2, "sampled": 9, "rows": 2,
    }  # fmt: skip
    return Settings(**{**given, **more})


def small_bert(place):
    """A folder with a small BERT and its tokenizer."""
    import transformers

    from tests.helpers.architectures import tiny

    tiny("bert")[0].save_pretrained(place)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "sat", "dog", "ran"]
    (place / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(place / "vocab.txt")).save_pretrained(place)
    return place


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


def _child(rank, world, port, model, lines, folder, asked, stop, shard, answer):
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port), HF_HUB_OFFLINE="1",
    )  # fmt: skip
    import torch

    torch.set_num_threads(1)
    from taut.audit import resume as _resume
    from taut.audit import run
    from taut.models import Samples

    _resume.SAVE_EVERY = -1.0  # after every batch
    _stop(rank, stop)
    samples = Samples("text", lines, "")
    record = run(model, samples, name="bert", folder=folder, settings=asked, shard=shard)
    (answer / f"{rank}.json").write_text(json.dumps(record.to_dict()))


def processes(model, folder, world, *, stop=None, lines=None, shard=None, **more):
    """Run an audit in some processes; what the first one gives, or None if it was stopped."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    answer = Path(tempfile.mkdtemp())  # a pipe would block a process until somebody reads it
    asked, lines = options(**more), LINES if lines is None else lines
    running = [
        SERVER.Process(
            target=_child, args=(r, world, port, model, lines, folder, asked, stop, shard, answer)
        )
        for r in range(world)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join(300)
    if any(process.is_alive() for process in running):
        for process in running:
            process.kill()
        pytest.fail("a process waits for ever")
    found = {int(file.stem): json.loads(file.read_text()) for file in answer.iterdir()}
    shutil.rmtree(answer)
    if len(found) == world and found[0]["complete"]:  # every process has the record of all
        assert all(record == found[0] for record in found.values())
    return found.get(0)


def same(mine, theirs):
    """Two records are the same, to the last bit of every number."""
    assert mine.keys() == theirs.keys()
    for key in mine.keys() - {"layers"}:
        assert mine[key] == theirs[key], key
    for a, b in zip(mine["layers"], theirs["layers"], strict=True):
        for key in a:
            assert a[key] == b[key], (a["path"], key)
    written = [json.dumps(each, allow_nan=False, sort_keys=True) for each in (mine, theirs)]
    assert written[0] == written[1]
