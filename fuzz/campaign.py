"""Several processes for some time, and what all of them found together."""

from __future__ import annotations

import multiprocessing
import os
import time
from pathlib import Path

from fuzz.areas import AREAS
from fuzz.case import unpacked
from fuzz.table import text
from fuzz.tally import Tally, load, tally_file, together
from fuzz.worker import Worker

REPORT_EVERY = 60.0  # seconds


def campaign(
    names: list[str], *, seconds: float, seed: int, processes: int, folder: Path
) -> dict[str, Tally]:
    """Run the areas; a folder of an earlier run with the same seed is continued."""
    folder.mkdir(parents=True, exist_ok=True)
    if processes == 1:
        _work(names, seed, 0, folder, seconds, 1)
        return found(names, folder)
    context = multiprocessing.get_context("spawn")  # a fork would share locks of torch and JAX
    workers = [
        context.Process(target=_work, args=(names, seed, number, folder, seconds, processes))
        for number in range(processes)
    ]
    for worker in workers:
        worker.start()
    shown = time.monotonic()
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.5)
        if time.monotonic() - shown > REPORT_EVERY:
            print(text(found(names, folder)), flush=True)
            shown = time.monotonic()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError("a process of the campaign ended early: see its message above")
    return found(names, folder)


def found(names: list[str], folder: Path) -> dict[str, Tally]:
    """What all workers found, in this run and in those that it continues."""
    tallies = {}
    for name in names:
        files = folder.glob(tally_file(folder, name, 0).name.replace("-0.npz", "-*.npz"))
        tallies[name] = together([load(file) for file in sorted(files)])
    return tallies


def again(file: Path) -> list[float]:
    """Judge the cases of a file once more."""
    cases, more = unpacked(file.read_bytes())
    area = AREAS[more["area"]]()
    return [float(ratio) for case in cases for ratio in area.judge(case).reshape(-1)]


def _work(
    names: list[str], seed: int, number: int, folder: Path, seconds: float, share: int
) -> None:
    if share > 1:  # processes with several threads each would wait for each other
        os.environ["OMP_NUM_THREADS"] = "1"
    Worker([AREAS[name]() for name in names], seed, number, folder).run(seconds, share=share)
