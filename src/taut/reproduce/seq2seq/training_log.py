"""What is written down while a model is trained: lines of JSON, and TensorBoard's events."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from taut._base.files import write_whole
from taut.reproduce.seq2seq.checkpoint import Progress
from taut.reproduce.seq2seq.needed_packages import for_training


def lines(file: Path) -> list[dict[str, Any]]:
    """The lines of a log; a last one that was cut short is left out."""
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


class Log:
    """A log that goes on where a checkpoint was: what a killed run wrote later is forgotten."""

    def __init__(self, folder: Path, kept: int, step: int) -> None:
        with for_training():
            from torch.utils.tensorboard import SummaryWriter

        file = folder / "log.jsonl"
        found = lines(file)[:kept]
        write_whole("".join(json.dumps(line) + "\n" for line in found), file)
        self.count = len(found)
        self._file = file.open("a", encoding="utf-8")
        self._board: Any = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, values: dict[str, float]) -> None:
        """Values by name at a step."""
        self._file.write(json.dumps({"step": step, **values}) + "\n")
        self._file.flush()
        self.count += 1
        for name, value in values.items():
            self._board.add_scalar(name, value, step)

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        self._board.close()


def course(progress: Progress, folder: Path) -> dict[str, Any]:
    """How the training went, by its log."""
    log = lines(folder / "log.jsonl")
    gradients = [line["gradient"] for line in log if "gradient" in line]
    paces = [line["step_seconds"] for line in log if "step_seconds" in line]
    scores = [
        value for line in log for name, value in line.items() if name.endswith("largest_score")
    ]
    return {
        "steps": progress.step, "seconds": round(progress.seconds, 1),
        "step_seconds": statistics.median(paces),
        "valid_loss": progress.best, "best_step": progress.best_step,
        "gradient_largest": max(gradients), "gradient_median": statistics.median(gradients),
        "score_largest": max(scores, default=None),
        "curve": [[ln["step"], ln["valid/loss"]] for ln in log if "valid/loss" in ln],
    }  # fmt: skip
