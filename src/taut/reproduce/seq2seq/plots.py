"""Plots of the experiments of Zhang et al. 2021."""

from __future__ import annotations

from statistics import mean

from taut.reproduce.result import Curve, Plot, limit_curve
from taut.reproduce.seq2seq.compared_runs import ComparedRuns, Number, kind
from taut.reproduce.seq2seq.printed_numbers import VARIANTS


def plots(found: ComparedRuns, number: Number, measure: str) -> list[Plot]:
    """Losses, scores by strength, and scores beside sensitivities."""
    by_strength = []
    for variant in VARIANTS:
        strengths = sorted(
            (float(method.split(", ")[1]), change)
            for method in found.methods
            if kind(method) == variant and (change := found.difference(method, number).values)
        )
        each = [(x, value) for x, change in strengths for value in change]
        means = [(x, mean(change)) for x, change in strengths]
        for points in (each, means) if strengths else ():
            x, y = map(list, zip(*points, strict=True))
            by_strength.append(Curve(variant, x, y, points=points is each))
    drawn = [_losses(found)]
    if by_strength:
        what = f"{measure}, difference from base, seed by seed and mean"
        zero = limit_curve("base", [x for curve in by_strength for x in curve.x], 0.0)
        drawn.append(Plot(what, "λ", f"{measure}, difference", [zero, *by_strength], log_x=True))
    scattered: dict[str, Curve] = {}
    for one in found.whole:
        name, value = kind(one["recipe"]["method"]), number(one)
        if "constant_mean" in one["after"] and value is not None:
            curve = scattered.setdefault(name, Curve(name, [], [], points=True))
            curve.x.append(one["after"]["constant_mean"])
            curve.y.append(value)
    what = f"{measure} and sensitivity, run by run, all strengths"
    return [*drawn, Plot(what, "mean local constant", measure, list(scattered.values()))]


def _losses(found: ComparedRuns) -> Plot:
    """Losses of validation beside the base's of the same seed, the mean of the seeds."""
    lines = []
    base = {one["recipe"]["seed"]: one for one in found.methods["base"] if "failed" not in one}
    for method, runs in found.methods.items():
        pairs = [
            (dict(map(tuple, one["curve"])), dict(map(tuple, base[one["recipe"]["seed"]]["curve"])))
            for one in runs
            if "failed" not in one and one["recipe"]["seed"] in base
        ]
        steps = sorted(set.intersection(*(set(a) & set(b) for a, b in pairs))) if pairs else []
        x, y = [float(s) for s in steps], [mean(a[s] - b[s] for a, b in pairs) for s in steps]
        lines.append(Curve(kind(method), x, y, dashed=method == "base"))
    what = "Validation loss, difference from base, mean of the seeds, all strengths"
    return Plot(what, "step", "loss per piece, difference", lines)
