"""θ, exact constants and sinks of trained models, beside Emadi 2026 and Yudin et al. 2025."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from taut._base.optional import needing
from taut._base.terminal_text import say
from taut.reproduce.data_sets import read, short
from taut.reproduce.every_row import every_row
from taut.reproduce.model_rows import LOW, SHARES, SINK_SHARE, ModelRows, yudin_ratio
from taut.reproduce.models_at_hand import EMBEDDED, KNOWN, place_of
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Plot, Result, ResultTable

DRAWS = 3  # different samples of the data
SIZES = {"text": (16, 4, 4), "images": (2, 1, 1)}  # samples of a draw, quick, and of a batch
MOST = 1 << 20  # samples that are read to draw from
HERE = "held-out Shakespeare"


def run(options: Options) -> Result:
    """Measure every row of all models that are here, on three draws of the data."""
    found: list[ModelRows] = []
    left_out: list[str] = []
    given = _read(options)
    for label, place in _models(options, left_out):
        kind = "images" if _sees(place) else "text"
        sources = {
            name: samples for name, samples in given.items() if samples.kind == kind
        }  # fmt: skip
        if place in _embedded() or (kind == "text" and not sources):
            from taut.models import embedded_data

            sources = {HERE: embedded_data(MOST)}
        if not sources:
            left_out.append(f"{label}: it needs images (`--data FOLDER`)")
        for name, samples in sources.items():
            found.append(_measured(label, place, name, samples, options))
    if not found:
        raise ValueError(f"no model can be measured here. {'; '.join(left_out)}")
    return _result(options, found, left_out)


def _embedded() -> dict[str, str]:
    """Labels of the models that ship with taut, by their folders."""
    from taut.models import embedded_models

    return {str(folder): label for label, folder in embedded_models().items()}


def _models(options: Options, left_out: list[str]) -> list[tuple[str, str]]:
    """Labels and places of the models; known ones that are not here are named and left out."""
    models: list[tuple[str, str]] = []
    for name in options.models or (EMBEDDED, *({} if options.quick else KNOWN)):
        if name == EMBEDDED:
            models += [(label, place) for place, label in _embedded().items()]
        elif name not in KNOWN:
            models.append((Path(name).name.removesuffix(".gguf") or name, name))
        elif (place := place_of(name)) is not None:
            models.append((name, place))
        else:
            left_out.append(f"{name}: not on this machine; `{KNOWN[name].command}` brings it")
    labels = [label for label, _ in models]
    if twins := {label for label in labels if labels.count(label) > 1}:
        raise ValueError(f"two models are called {twins.pop()}: one must be renamed, or left out")
    return models


def _read(options: Options) -> dict[str, Any]:
    """All samples of the data that were given, by their short names."""
    given: dict[str, Any] = {}
    for source in options.data:
        samples = read(source, MOST)
        if samples.kind not in SIZES:
            raise ValueError(f"real-models needs texts or images, {source} is {samples.kind}")
        given[short(source)] = samples
    return given


def _sees(place: str) -> bool:
    """Whether a model takes images, by its configuration."""
    if place.endswith(".gguf"):
        return False
    with needing("models by name need transformers", "hf"):
        from transformers import AutoConfig
    return hasattr(AutoConfig.from_pretrained(place), "image_size")


def _measured(label: str, place: str, name: str, samples: Any, options: Options) -> ModelRows:
    """Rows and audits of a model, on draws that share no sample."""
    from taut.audit import run as audited
    from taut.reproduce.row_bounds import bounds_of_layer

    full, quick, size = SIZES[samples.kind]
    count = min(options.size(full, quick), len(samples.items) // DRAWS)
    if count < 1:
        raise ValueError(f"{name} has {len(samples.items)} samples, fewer than {DRAWS} draws")
    order = np.random.default_rng(options.seed).permutation(len(samples.items))
    draws, records = [], []
    for draw in range(DRAWS):
        say(f"{label} on {name}, draw {draw + 1} of {DRAWS}")
        chosen = [samples.items[i] for i in order[draw * count : (draw + 1) * count]]
        part = samples._replace(items=chosen)
        records.append(
            audited(
                place, part, name=f"{label}, draw {draw + 1}", folder=options.folder / "audits",
                dtype="float32", batch_size=size, limit=count, norms=(1.0, 2.0), epsilons=(),
            )
        )  # fmt: skip
        draws.append(
            every_row(
                place, part, bounds_of_layer, size=size, folder=options.folder / "rows", key={}
            )
        )
    return ModelRows(f"{label} on {name}", draws, records)


def _result(options: Options, found: list[ModelRows], left_out: list[str]) -> Result:
    theta = ResultTable(
        f"θ of all rows with at least 8 keys: mean of {DRAWS} draws (smallest to largest)",
        ["where", "rows", "mean θ", f"rows with θ < {LOW:g}", f"heads with mean θ < {LOW:g}",
         "smallest mean of a head", "smallest θ"],
        [one.theta_line() for one in found],
    )  # fmt: skip
    quantiles = [f"{share:.0%} of rows at most" for share in SHARES]
    constants = ResultTable(
        "Exact l2 constants of the same rows, and sinks",
        ["where", "mean", *quantiles, "largest", "rows ≥ 0.45", "heads with a sink",
         "the usual sink"],
        [one.constant_line() for one in found],
    )  # fmt: skip
    bounds = ResultTable(
        "Bounds as multiples of what they bound",
        ["where", "bound", *quantiles, "worst row", "rows that exceed it"],
        [line for one in found for line in one.bound_lines()],
    )
    loosest = ResultTable(
        "Where the bound of Yudin et al. is loosest",
        ["where", "draw", "layer", "head", "sample", "query", "exact", "bound", "ratio"],
        [one.loosest_row() for one in found],
    )
    rows, broken = sum(one.rows for one in found), sum(one.broken for one in found)
    claims = [
        Claim(f"{one.where}: θ ≈ 1 persists in trained models (here: at most 5 % of rows with "
              f"θ < {LOW:g})", "θ ≈ 1 (Emadi 2026)",
              f"mean {one.mean_theta:.4f}, {one.low_theta:.1%} of rows below {LOW:g}",
              one.low_theta <= 0.05)
        for one in found
    ]  # fmt: skip
    claims.append(
        Claim(f"‖M‖₂ ≤ s₁(1 − s₁ + s₂), {rows:,} rows", "always (Yudin et al. 2025)",
              f"exceeded by {broken} rows", broken == 0)
    )  # fmt: skip
    width = max(float(draw["theta_width"].max()) for one in found for draw in one.draws)
    grid = np.linspace(0, 1, 51).tolist()
    plots = [
        Plot("Share of rows with θ at most x", "θ", "share of rows",
             [one.distribution(lambda draw: draw["theta"], grid) for one in found]),
        Plot("Mean θ by layer", "layer", "mean θ", [one.theta_by_layer() for one in found]),
        Plot("Bound of Yudin et al., share of rows at most x",
             "bound / exact constant", "share of rows",
             [one.distribution(yudin_ratio, np.linspace(1, 1.25, 51).tolist()) for one in found]),
    ]  # fmt: skip
    return Result(
        "real-models",
        "Real models beside Emadi 2026 and Yudin et al. 2025",
        {"draws": DRAWS, "samples of a draw": [one.records[0].samples for one in found],
         "seed": options.seed},
        claims, [theta, constants, bounds, loosest], plots, _remarks(left_out, width),
    )  # fmt: skip


def _remarks(left_out: list[str], width: float) -> list[str]:
    told = [
        "Every row of attention that sees at least 8 keys is measured, on three draws of the data "
        "that share no sample. θ = 4 max P(S)(1 − P(S)) over sets S of keys is the exact constant "
        "of a row from l∞ to l1 (theorem inf-to-1). Emadi (2026, arXiv 2602.18849) found θ ≈ 1 in "
        "models of 774 million weights throughout training, and concludes that attention does not "
        "become less sensitive by learning. M = Diag(s) − ssᵀ is the Jacobian of softmax, ‖M‖₂ its "
        "exact constant in l2 (theorem local-2), and s₁ ≥ s₂ the largest weights of a row. Yudin "
        "et al. (2025, arXiv 2507.07814) bound it by s₁(1 − s₁ + s₂) (theorem local-2-bracket), "
        "which is at most 2s₁(1 − s₁), and that at most ½.",
        "",
        "θ and the bounds are computed in double precision from the scores of the model; the "
        "bracket of θ is narrower than 1e-6 as a rule, "
        f"{width:.1e} at most here, and its lower side is shown. A head has a "
        f"sink if in at least {SINK_SHARE:.0%} of the samples one key has at least 30 % of the "
        "weight of all rows; a token is called by its text in most samples, and the first one of a "
        "text may be any word. Draws, layers, heads, samples and queries are counted from 0.",
    ]
    if left_out:
        told += ["", f"Left out: {'; '.join(left_out)}."]
    return told
