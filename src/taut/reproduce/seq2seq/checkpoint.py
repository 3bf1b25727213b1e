"""Checkpoints of a training: whole or not there, the newest one alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from taut._base.files import new_folder, write_whole
from taut._base.json_files import read_json
from taut.reproduce.seq2seq.needed_packages import for_training


class Progress:
    """How far a training is; a part of its checkpoints."""

    def __init__(self) -> None:
        self.step = 0
        self.best = float("inf")
        self.best_step = 0
        self.stale = 0  # validations since the best
        self.seconds = 0.0
        self.lines = 0  # of the log

    def state_dict(self) -> dict[str, Any]:
        """The state, for a checkpoint."""
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        vars(self).update(state)


def save(accelerator: Any, folder: Path, progress: Progress) -> None:
    """Write a checkpoint beside the last one, then point to it, then remove what is older."""
    name = f"checkpoint-{progress.step}"
    try:
        if accelerator.is_main_process:
            shutil.rmtree(folder / name, ignore_errors=True)
        accelerator.wait_for_everyone()
        # safetensors warns of weights that are shared, as the embeddings are here.
        accelerator.save_state(str(folder / name), safe_serialization=False)
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            write_whole(json.dumps({"checkpoint": name}), folder / "latest.json")
            for old in (*folder.glob("checkpoint-*"), *folder.glob("best-*")):
                if old.name not in (name, best_name(progress.best_step)):
                    shutil.rmtree(old, ignore_errors=True)
    except (OSError, RuntimeError) as error:  # torch says RuntimeError on a full disk
        shutil.rmtree(folder / name, ignore_errors=True)
        raise OSError(
            f"cannot write a checkpoint to {folder}: {error}; once there is room, the same command "
            "goes on from the last one that was written"
        ) from error


def best_name(step: int) -> str:
    """Name of the folder with the weights of the best validation, which was at this step."""
    return f"best-{step}"


def load(accelerator: Any, folder: Path) -> None:
    """Go on from the newest checkpoint, if there is one."""
    file = folder / "latest.json"
    if file.exists():
        try:
            name = str(read_json(file)["checkpoint"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{file} does not name a checkpoint: {error}") from None
        if Path(name).name != name:
            raise ValueError(f"{file} names a checkpoint in another folder: {name!r}")
        accelerator.load_state(str(folder / name))


def save_weights(model: Any, folder: Path) -> None:
    """A model of transformers in a folder that is whole or not there."""
    with for_training():
        from safetensors import SafetensorError

    try:
        with new_folder(folder) as part:
            model.save_pretrained(part)
    except (OSError, SafetensorError) as error:
        raise OSError(f"cannot write weights to {folder}: {error}") from error
