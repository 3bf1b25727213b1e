"""verify_vnnlib: the verdict of a network on a property of a VNN-LIB file."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from taut._base.domain import At
from taut.networks.verification.verdict import Verdict
from taut.networks.verification.verify import verify
from taut.networks.vnnlib_files.read import Inequality, UnsafeCase, VnnlibProperty

WORDS = {"proved": "unsat", "refuted": "sat", "open": "unknown"}
Box = tuple[tuple[Fraction, ...], tuple[Fraction, ...]]


@dataclass(frozen=True)
class PropertyVerdict:
    """What :func:`verify_vnnlib` found.

    Attributes
    ----------
    verdict
        ``"proved"``: no input of a box has unsafe outputs, which VNN-LIB calls unsat.
        ``"refuted"``: ``example`` has (sat). ``"open"``: neither was found (unknown).
    example, output
        An input in the box, (1, ...), and the output of the network as executed, which lies in the
        unsafe set by exact arithmetic; None unless refuted.
    seconds
        Time that was spent.
    boxes
        The verdict on each box of inputs that was looked at.
    """

    verdict: Literal["proved", "refuted", "open"]
    example: torch.Tensor | None
    output: torch.Tensor | None
    seconds: float
    boxes: tuple[Verdict, ...]

    @property
    def word(self) -> str:
        """The verdict as VNN-LIB calls it: unsat, sat or unknown."""
        return WORDS[self.verdict]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words, for JSON."""
        plain = [None if v is None else v.flatten().tolist() for v in (self.example, self.output)]
        boxes = [{**each.to_dict(), "example": None} for each in self.boxes]
        for each in boxes:
            each["norm"] = f"l{each['norm']:g}"
            each["lower"] = each["lower"] if math.isfinite(each["lower"]) else None
        return {
            "verdict": self.verdict, "vnnlib": self.word, "input": plain[0], "output": plain[1],
            "seconds": self.seconds, "boxes": boxes,
        }  # fmt: skip

    def counterexample(self) -> str:
        """The input and output as the competition writes them; empty unless refuted."""
        if self.example is None or self.output is None:
            return ""
        pairs = [
            f"({name}_{index} {float(value)!r})"
            for name, values in (("X", self.example), ("Y", self.output))
            for index, value in enumerate(values.flatten().tolist())
        ]
        return "(" + "\n ".join(pairs) + ")\n"


def verify_vnnlib(
    module: nn.Module,
    wanted: VnnlibProperty,
    *,
    input_shape: tuple[int, ...] | None = None,
    executed: bool = True,
    time_limit: float | None = None,
    folder: str | Path | None = None,
    progress: Callable[[Verdict], object] | None = None,
    seed: int = 0,
) -> PropertyVerdict:
    """Whether a property of a VNN-LIB file holds of a network.

    Each box of inputs is put to :func:`verify` as a ball in l∞ with a scale for each entry. An
    input that refutes the property is executed, and checked against the box and the inequalities
    of the file in exact arithmetic.

    Parameters
    ----------
    module
        A network, such as one that :func:`read_onnx` read.
    wanted
        The property, from :func:`read_vnnlib`.
    input_shape
        Shape of one input, without the batch; that of the file for networks from ONNX.
    executed, progress, seed
        As in :func:`verify`.
    time_limit
        Seconds for all boxes together.
    folder
        Where the state is kept, a folder for each box, so that the same call carries on.
    """
    shape = tuple(getattr(module, "input_shape", ()) if input_shape is None else input_shape)
    if math.prod(shape) != wanted.inputs:
        raise ValueError(
            f"the property has {wanted.inputs} inputs, X_0 to X_{wanted.inputs - 1}, and the "
            f"network takes {math.prod(shape)}, of shape {shape}"
        )
    begin = time.monotonic()
    boxes: dict[Box, list[UnsafeCase]] = {}
    for case in wanted.cases:
        boxes.setdefault((case.lower, case.upper), []).append(case)
    found: list[Verdict] = []
    for number, (box, cases) in enumerate(boxes.items(), start=1):
        middle, half = _ball(box)
        x = torch.from_numpy(middle).reshape(1, *shape)
        output = _checked_output(module, x, wanted)
        left = None if time_limit is None else max(0.0, begin + time_limit - time.monotonic())
        rows, above, clauses = _functions(cases, output)
        part = verify(
            module, At(x, 1.0), norm=math.inf, scale=torch.from_numpy(half).reshape(shape),
            targets=rows, above=above, clauses=clauses, executed=executed, time_limit=left,
            folder=None if folder is None else Path(folder) / f"box-{number}",
            progress=progress, seed=seed,
        )  # fmt: skip
        found.append(part)
        if part.example is not None:
            values = _run(module, part.example)
            if _violates(part.example, values, cases):
                spent = time.monotonic() - begin
                return PropertyVerdict("refuted", part.example, values, spent, tuple(found))
    done = all(part.verdict == "proved" for part in found)
    spent = time.monotonic() - begin
    return PropertyVerdict("proved" if done else "open", None, None, spent, tuple(found))


def _run(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = module(x)
    return found


def _checked_output(module: nn.Module, x: torch.Tensor, wanted: VnnlibProperty) -> torch.Tensor:
    """The output in the middle, refused if the property is about other outputs."""
    weight = next(iter(module.parameters()), x)
    output = _run(module, x.to(weight))
    if output.numel() != wanted.outputs:
        raise ValueError(
            f"the property has {wanted.outputs} outputs, Y_0 to Y_{wanted.outputs - 1}, and the "
            f"network gives {output.numel()}"
        )
    return output


def _ball(box: Box) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Middle and half-widths in float64, rounded so that they hold the box."""
    middle, half = np.empty(len(box[0])), np.empty(len(box[0]))
    for index, (low, high) in enumerate(zip(*box, strict=True)):
        middle[index] = float((low + high) / 2)
        centre = Fraction(middle[index])
        half[index] = _up(max(high - centre, centre - low))
    return middle, half


def _up(value: Fraction) -> float:
    """The nearest float64 that is not smaller."""
    found = float(value)
    return found if Fraction(found) >= value else float(np.nextafter(found, math.inf))


def _functions(
    cases: list[UnsafeCase], output: torch.Tensor
) -> tuple[torch.Tensor, list[float], list[int]]:
    """Coefficients, what they must exceed, and the clause of each inequality."""
    rows, above, clauses = [], [], []
    for clause, case in enumerate(cases):
        if not case.outputs:
            raise ValueError("the property does not constrain the outputs: every input is unsafe")
        for each in case.outputs:
            # an inequality in whole numbers is the same one, and exact in float64
            unit = math.lcm(*(value.denominator for value in each.coefficients.values()))
            row = np.zeros(output.numel())
            for index, value in each.coefficients.items():
                if abs(value * unit) > 2**53:
                    raise ValueError(f"the coefficient of Y_{index} has too many digits: {value}")
                row[index] = float(value * unit)
            rows.append(row)
            above.append(_up(each.limit * unit))
            clauses.append(clause)
    targets = torch.from_numpy(np.stack(rows))
    tokens = output.shape[1:] if output.ndim == 3 else (-1,)
    return targets.reshape(len(rows), *tokens), above, clauses


def _violates(example: torch.Tensor, output: torch.Tensor, cases: list[UnsafeCase]) -> bool:
    """Whether an input and its output are of an unsafe case, in exact arithmetic."""
    x = [Fraction(value) for value in example.flatten().tolist()]
    y = [Fraction(value) for value in output.flatten().tolist()]
    for case in cases:
        inside = all(
            low <= value <= high for low, value, high in zip(case.lower, x, case.upper, strict=True)
        )
        if inside and all(_holds(each, y) for each in case.outputs):
            return True
    return False


def _holds(each: Inequality, y: list[Fraction]) -> bool:
    value = sum((c * y[index] for index, c in each.coefficients.items()), Fraction(0))
    return value < each.limit or (value == each.limit and not each.strict)
