"""Run a model once more, unchanged, and measure every attention softmax in the pass."""

from __future__ import annotations

from typing import Any

from torch import nn

from taut.control.monitor.layer_measurement import LayerMeasurement, over_rows
from taut.models import (
    Captured,
    SoftmaxCapture,
    attention_rows,
    capture,
    copied_tensors,
    measure_rows,
    number_of_heads,
    projection_norms,
    unchanged,
)


def measure_pass(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, weights: bool
) -> tuple[list[LayerMeasurement], list[str]]:
    """Measure the softmaxes of a pass on copies of the arguments; and name what was not seen."""
    modules = dict(model.named_modules())
    captures: list[SoftmaxCapture] = []
    found: list[LayerMeasurement] = []
    missed: list[str] = []
    calls: dict[str, int] = {}

    def visit(seen: Captured) -> None:
        calls[seen.path] = calls.get(seen.path, 0) + 1
        name = _name(seen.path, calls[seen.path], model)
        try:
            rows = attention_rows(seen, captures[0].inputs, number_of_heads(modules.get(seen.path)))
        except ValueError as error:
            missed.append(f"{name} ({error})")
            return
        measured = measure_rows(rows)
        sigma = projection_norms(modules, seen.path) if weights and calls[seen.path] == 1 else {}
        found.append(over_rows(name, measured, sigma))

    with unchanged(model), capture(model, visit) as capturing:
        captures.append(capturing)
        model(*copied_tensors(args), **copied_tensors(kwargs))
    missed += [f"{m.path or type(model).__name__} ({m.operation})" for m in capturing.missed]
    return found, missed


def _name(path: str, call: int, model: nn.Module) -> str:
    """The name in an audit: the module, and which of its softmaxes if it has several."""
    parts = [part for part in path.split(".") if part != "_orig_mod"]
    name = ".".join(parts) or type(model).__name__
    return name if call == 1 else f"{name} ({call})"
