"""A case of the campaign: named arrays and settings, from which its bounds can be found again."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Setting = float | int | str | bool


@dataclass(frozen=True)
class Case:
    """What an area judges: one thing, or rows that are judged together."""

    arrays: Mapping[str, Array] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.arrays[name] if name in self.arrays else self.settings[name]

    def but(self, **changes: Any) -> Case:
        """The case with some arrays and settings replaced or added."""
        arrays = {name: value for name, value in changes.items() if isinstance(value, np.ndarray)}
        settings = {name: value for name, value in changes.items() if name not in arrays}
        return replace(
            self, arrays={**self.arrays, **arrays}, settings={**self.settings, **settings}
        )

    def row(self, index: int, name: str = "x") -> Case:
        """The case with one row of an array only."""
        return self.but(**{name: self.arrays[name][index : index + 1]})


def packed(cases: list[Case], more: Mapping[str, Any]) -> bytes:
    """Cases and other numbers as the content of an .npz file."""
    arrays = {
        f"{number}/{name}": value
        for number, case in enumerate(cases)
        for name, value in case.arrays.items()
    }
    text = json.dumps({"settings": [dict(case.settings) for case in cases], **more})
    stream = io.BytesIO()
    np.savez_compressed(stream, text=np.array(text), **arrays)
    return stream.getvalue()


def unpacked(content: bytes) -> tuple[list[Case], dict[str, Any]]:
    """The cases and other numbers of a file of :func:`packed`."""
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        more = json.loads(str(file["text"]))
        cases = [Case({}, settings) for settings in more.pop("settings")]
        for name in file.files:
            if name != "text":
                number, _, key = name.partition("/")
                cases[int(number)] = cases[int(number)].but(**{key: file[name]})
    return cases, more
