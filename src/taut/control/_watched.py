"""One pass of a model aside, and the numbers of every head in it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from taut.audit._capture import Watch, _eager, capture
from taut.audit._layout import arranged, heads_of
from taut.audit._measure import Array, Measured, measure
from taut.audit._seen import Seen
from taut.control._aside import aside, copied
from taut.control._sigma import projections

HEAD = ("largest_score", "mean_entropy", "mean_constant", "largest_constant")


class Watched(NamedTuple):
    """The heads of one attention softmax, one number each; NaN where no row counts."""

    name: str
    largest_score: Array
    mean_entropy: Array
    mean_constant: Array
    largest_constant: Array
    broken: int  # rows with NaN or +inf, which do not count
    sigma: dict[str, float]  # spectral norms of the projections, where they were asked for

    def values(self) -> dict[str, float]:
        """All numbers under their keys: of each head, then of the layer."""
        found = {
            f"attention/{self.name}/head_{h}/{what}": float(getattr(self, what)[h])
            for h in range(len(self.largest_score))
            for what in HEAD
        }
        return found | self.summary()

    def summary(self) -> dict[str, float]:
        """The numbers of the layer: extremes and means over its heads."""
        whole = {
            "largest_score": over(self.largest_score, np.max),
            "mean_entropy": over(self.mean_entropy, np.mean),
            "lowest_entropy": over(self.mean_entropy, np.min),
            "mean_constant": over(self.mean_constant, np.mean),
            "largest_constant": over(self.largest_constant, np.max),
            **{f"sigma_max/{name}": value for name, value in self.sigma.items()},
        }
        return {f"attention/{self.name}/{what}": value for what, value in whole.items()}


def watch(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, weights: bool
) -> tuple[list[Watched], list[str]]:
    """Run the model aside on copies of the arguments: its softmaxes, and what could not be seen."""
    modules = dict(model.named_modules())
    watching: list[Watch] = []
    found: list[Watched] = []
    missed: list[str] = []
    calls: dict[str, int] = {}

    def visit(seen: Seen) -> None:
        calls[seen.path] = calls.get(seen.path, 0) + 1
        name = _name(seen.path, calls[seen.path], model)
        try:
            rows = arranged(seen, watching[0].sources, heads_of(modules.get(seen.path)))
        except ValueError as error:
            missed.append(f"{name} ({error})")
            return
        measured = measure(rows)
        sigma = projections(modules, seen.path) if weights and calls[seen.path] == 1 else {}
        found.append(_reduced(name, measured, sigma))

    with aside(model), ExitStack() as stack:
        for part in _switchable(model):
            _eager(part, stack)
        with capture(model, visit) as capturing:
            watching.append(capturing)
            model(*copied(args), **copied(kwargs))
    missed += [f"{m.path or type(model).__name__} ({m.operation})" for m in capturing.missed]
    return found, missed


def _reduced(name: str, measured: Measured, sigma: dict[str, float]) -> Watched:
    """From rows, (samples, heads, queries), to heads."""
    kept = measured.kept
    count = kept.sum(axis=(0, 2))

    def mean(what: str) -> Array:
        total = np.where(kept, measured.values[what], 0.0).sum(axis=(0, 2), dtype=np.float64)
        return np.where(count > 0, total / np.maximum(count, 1), np.nan)

    def largest(what: str) -> Array:
        top = np.where(kept, measured.values[what], -np.inf).max(axis=(0, 2), initial=-np.inf)
        return np.where(count > 0, top, np.nan)

    return Watched(
        name, largest("score"), mean("entropy"), mean("two"), largest("two"),
        int(measured.broken.sum()), sigma,
    )  # fmt: skip


def over(values: Array, reduce: Any) -> float:
    """A mean or an extreme of the heads that have a value."""
    known = values[~np.isnan(values)]
    return float(reduce(known)) if known.size else math.nan


def _name(path: str, call: int, model: nn.Module) -> str:
    """As in an audit: the module, and which of its softmaxes if it has several."""
    parts = [part for part in path.split(".") if part != "_orig_mod"]
    name = ".".join(parts) or type(model).__name__
    return name if call == 1 else f"{name} ({call})"


def _switchable(model: nn.Module) -> Iterable[nn.Module]:
    """Models of Hugging Face inside of others, whose attention has several implementations."""
    if hasattr(model, "set_attn_implementation"):
        return ()  # the capture does it
    below: list[str] = []
    found = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{path}.") for path in below)
        if not inside and hasattr(module, "set_attn_implementation"):
            below.append(name)
            found.append(module)
    return found
