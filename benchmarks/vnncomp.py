"""The competition's vision transformer ibp_3_3_8: no other class within l∞ 1/255 of raw pixels.

``python -m benchmarks.vnncomp FOLDER --images 100 --seconds 107`` verifies the first images one
after the other, on one thread, and carries on where it was stopped, also with more seconds for the
images that are still open. Each image becomes a small file in FOLDER/verdicts, its state lies in
FOLDER/states, and FOLDER/vnncomp.json is the summary. ``--seconds`` are of processor time, for each
image in all runs together.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch

import taut
from benchmarks.published_networks import competition
from taut._base.files import write_whole
from taut.networks import Verdict, verify

PUBLISHED = "α,β-CROWN proves 65 of its 100 images within 107 s each (VNN-COMP 2025)"


class _SpentError(Exception):
    """The processor time of an image is spent."""


def run(folder: Path, images: int, seconds: float) -> dict[str, Any]:
    """Verdicts on the first images, and how many of each kind there are."""
    torch.set_num_threads(1)
    (folder / "verdicts").mkdir(parents=True, exist_ok=True)
    net, x, labels, scale = competition()
    for index in range(images):
        file = folder / "verdicts" / f"{index:03d}.json"
        before = json.loads(file.read_text()) if file.exists() else None
        if before is None or _may_go_on(before, seconds):
            spent = 0.0 if before is None else before["cpu_seconds"]
            question = {"label": int(labels[index]), "scale": scale, "folder": folder / "states"}
            found = _verdict(net, x[index : index + 1], question, seconds, spent)
            write_whole(json.dumps(found), file)
            print(index, found, flush=True)
        write_whole(json.dumps(summary(folder), indent=1) + "\n", folder / "vnncomp.json")
    return summary(folder)


def _may_go_on(before: dict[str, Any], seconds: float) -> bool:
    """Whether more time could decide what is open."""
    return before["verdict"] == "open" and not before["note"] and before["cpu_seconds"] < seconds


def _verdict(
    net: Any, x: torch.Tensor, question: dict[str, Any], seconds: float, spent: float
) -> dict[str, Any]:
    """One image: what is known once it is decided, or once its time is spent."""
    begin = time.process_time() - spent
    known: list[Verdict] = []

    def watch(verdict: Verdict) -> None:
        known.append(verdict)
        if time.process_time() - begin > seconds:
            raise _SpentError

    try:
        found = verify(net, taut.At(x, 1.0), norm=math.inf, progress=watch, **question)
    except _SpentError:
        found = known[-1]
    return {
        "verdict": found.verdict,
        "lower": round(found.lower, 6) if math.isfinite(found.lower) else None,
        "bounded": found.bounded,
        "waiting": found.waiting,
        "cpu_seconds": round(time.process_time() - begin, 2),
        "rounding": found.rounding,
        "note": found.note,
    }


def summary(folder: Path) -> dict[str, Any]:
    """All verdicts so far."""
    files = sorted((folder / "verdicts").glob("*.json"))
    found = {int(file.stem): json.loads(file.read_text()) for file in files}
    count = {kind: sum(each["verdict"] == kind for each in found.values())
             for kind in ("proved", "refuted", "open")}  # fmt: skip
    proved = [each["cpu_seconds"] for each in found.values() if each["verdict"] == "proved"]
    return {
        "network": "vnncomp-vit-ibp-3-3-8",
        "property": "no other class within l∞ 1/255 of raw pixels",
        "published": PUBLISHED,
        "images": len(found),
        **count,
        "cpu_seconds_proved_mean": round(sum(proved) / max(len(proved), 1), 2),
        "cpu_seconds_proved_most": max(proved, default=0.0),
        "verdicts": [{"image": index, **each} for index, each in found.items()],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=107.0)
    chosen = parser.parse_args()
    print(json.dumps({k: v for k, v in run(chosen.folder, chosen.images, chosen.seconds).items()
                      if k != "verdicts"}, indent=1))  # fmt: skip
