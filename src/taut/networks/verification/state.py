"""State of a verdict in a folder, so that work goes on where it was stopped."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from taut._base.files import write_whole

FORMAT = 2


@dataclass
class State:
    """What is known so far.

    Attributes
    ----------
    lower
        Lower bound of each clause, (clauses,).
    bounded
        How many branches were bounded, of all clauses.
    seconds
        Time that was spent in earlier runs.
    attacked
        Whether the search for a counterexample is done.
    clause, relus, branches
        The clause whose tree was stopped, or −1; its undecided ReLUs as (node, place); and the
        branches that are left, one array for each of their parts.
    example
        The counterexample, if there is one.
    """

    lower: np.ndarray[Any, Any]
    bounded: int = 0
    seconds: float = 0.0
    attacked: bool = False
    clause: int = -1
    relus: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros((0, 2), np.int64))
    branches: tuple[np.ndarray[Any, Any], ...] = ()
    example: np.ndarray[Any, Any] | None = None


class StateFile:
    """One file for each question; nothing is kept without a folder."""

    def __init__(self, folder: str | Path | None, fingerprint: str) -> None:
        self.file = None
        if folder is not None:
            place = Path(folder)
            place.mkdir(parents=True, exist_ok=True)
            self.file = place / f"verify-{fingerprint[:24]}.npz"
        self.fingerprint = fingerprint

    def read(self) -> State | None:
        """What was kept; None if there is nothing that fits."""
        if self.file is None or not self.file.exists():
            return None
        try:
            # read whole: np.load leaves a broken file open
            with np.load(io.BytesIO(self.file.read_bytes()), allow_pickle=False) as data:
                told = json.loads(str(data["told"]))
                if told.pop("fingerprint") != self.fingerprint or told.pop("format") != FORMAT:
                    return None
                many = told.pop("branches")
                return State(
                    data["lower"], relus=data["relus"],
                    branches=tuple(data[f"branches{i}"] for i in range(many)),
                    example=data.get("example"), **told,
                )  # fmt: skip
        except (ValueError, KeyError, TypeError, EOFError, OSError, BadZipFile) as error:
            raise ValueError(
                f"{self.file} cannot be read ({error}): delete it to start again"
            ) from error

    def write(self, state: State) -> None:
        """Keep the state, whole or not at all."""
        if self.file is None:
            return
        told = {
            "format": FORMAT, "fingerprint": self.fingerprint, "bounded": state.bounded,
            "seconds": state.seconds, "attacked": state.attacked, "clause": state.clause,
            "branches": len(state.branches),
        }  # fmt: skip
        arrays = {"lower": state.lower, "relus": state.relus, "told": np.array(json.dumps(told))}
        arrays |= {f"branches{i}": part for i, part in enumerate(state.branches)}
        if state.example is not None:
            arrays["example"] = state.example
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **arrays)
        write_whole(stream.getvalue(), self.file)
