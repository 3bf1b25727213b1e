"""What `taut certify --vnnlib` prints: proved, refuted or open."""

from __future__ import annotations

import json as json_text
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from taut._base.terminal_text import say

if TYPE_CHECKING:
    from taut.networks import PropertyVerdict, Verdict

EXITS = {"proved": 0, "refuted": 1, "open": 3}
EVERY = 5.0  # seconds between two lines of progress


def show_verdict(
    model: str, vnnlib: Path, time_limit: float | None, seed: int, counterexample: Path | None,
    folder: Path | None, *, json: bool,
) -> int:  # fmt: skip
    """Put the property to the network, print the verdict, and return the exit code."""
    if not model.endswith((".onnx", ".onnx.gz")):
        raise ValueError(f"--vnnlib takes an ONNX file (.onnx or .onnx.gz), got {model}")
    if time_limit is not None and not time_limit > 0:
        raise ValueError(f"--time-limit must be a number of seconds > 0, got {time_limit:g}")
    from taut._base.files import write_whole
    from taut.networks import read_onnx, read_vnnlib, verify_vnnlib

    quiet = json or not sys.stderr.isatty()
    found = verify_vnnlib(
        read_onnx(model), read_vnnlib(vnnlib), time_limit=time_limit, seed=seed,
        folder=folder,
        progress=None if quiet else _Progress(),
    )  # fmt: skip
    if counterexample is not None and found.example is not None:
        write_whole(found.counterexample(), counterexample)
    if json:
        record = {"model": model, "vnnlib_file": str(vnnlib), "seed": seed, **found.to_dict()}
        print(json_text.dumps(record, indent=1))
    else:
        _show(found, counterexample)
    return EXITS[found.verdict]


class _Progress:
    """A line now and then."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __call__(self, so_far: Verdict) -> None:
        if time.monotonic() - self.last >= EVERY:
            self.last = time.monotonic()
            say(f"taut certify: {so_far}", file=sys.stderr)


def _show(found: PropertyVerdict, counterexample: Path | None) -> None:
    meaning = {
        "proved": "no input of the property has an unsafe output",
        "refuted": "an input of the property has an unsafe output",
        "open": "neither a proof nor a counterexample was found",
    }[found.verdict]
    say(f"{found.verdict} ({found.word}): {meaning} ({found.seconds:.1f} s).")
    if found.output is not None:
        values = ", ".join(f"{value:.6g}" for value in found.output.flatten().tolist()[:12])
        more = ", ..." if found.output.numel() > 12 else ""
        say(f"The network was executed at this input; its output is {values}{more}.")
        kept = f"is in {counterexample}" if counterexample else "is in the output of --json"
        say(f"The input {kept}.")
        return
    for number, part in enumerate(found.boxes, start=1):
        say(f"Box {number} of the inputs: {part}")
    if found.verdict == "proved" and found.boxes:
        rounding = "estimated" if any(b.rounding == "estimated" for b in found.boxes) else "proved"
        theorems = ", ".join(dict.fromkeys(t for b in found.boxes for t in b.theorem))
        say(f"It holds for the network as executed, rounding {rounding}. Theorems: {theorems}.")
