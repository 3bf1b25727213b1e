"""S1's Figures 1 and 3: softmaxes of attention in vision and language models."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut._checks import exponent_name
from taut.reproduce._options import Options
from taut.reproduce._result import Claim, Curve, Plot, Result, Table, ratio_plots
from taut.reproduce._rows import below, bracket

if TYPE_CHECKING:
    from taut.audit import Record

VISION = (
    "google/vit-base-patch16-224",
    "google/vit-large-patch16-224",
    "google/vit-huge-patch14-224-in21k",
)
IMAGES = ("hf:uoft-cs/cifar100::test", "hf:ILSVRC/imagenet-1k::validation")
LANGUAGE = ("openai-community/gpt2-large", "Qwen/Qwen3-8B")
PROMPTS = ("hf:Rowan/hellaswag::validation", "hf:ybisk/piqa::validation")
NEAR = 0.499
EMBEDDED = "embedded"  # the models that ship with taut, on text that they have not seen
COLUMNS = {"hellaswag": "ctx", "piqa": "goal"}


def figure_1(options: Options) -> Result:
    """Attention scores of vision transformers on images."""
    models, data = options.models or VISION, options.data or IMAGES
    records = _records(models, data, options, "images", full=100, quick=4, rows=8, size=1)
    return _result("figure-1", "Figure 1: attention of vision transformers", records, options, [])


def figure_3(options: Options) -> Result:
    """Attention scores of language models on prompts."""
    models = options.models or ((EMBEDDED,) if options.quick and not options.data else LANGUAGE)
    others = tuple(model for model in models if model != EMBEDDED)
    data = options.data or PROMPTS
    records = _records(others, data, options, "text", full=100, quick=12, rows=16, size=4)
    if EMBEDDED in models:
        from taut.audit._embedded import embedded_data, embedded_models

        texts = embedded_data(options.size(100, 12))
        for label, folder in embedded_models().items():
            found = _audited(str(folder), label, texts, options, 16, 4)
            records[label, "held-out Shakespeare"] = found
    near = Claim(
        "some ratios along random directions come near ½",
        "0.4999 for GPT-2 and 0.4995 for Qwen3, on PIQA", "", None,
    )  # fmt: skip
    title = "Figure 3: attention of language models"
    return _result("figure-3", title, records, options, [near])


def _records(
    models: tuple[str, ...], data: tuple[str, ...], options: Options, kind: str, *,
    full: int, quick: int, rows: int, size: int,
) -> dict[tuple[str, str], Record]:  # fmt: skip
    count = options.size(full, quick)
    found: dict[tuple[str, str], Record] = {}
    for source in data if models else ():
        samples = read(source, count)
        if samples.kind != kind:
            raise ValueError(f"this figure needs {kind}, {source} is {samples.kind}")
        for model in models:
            name = Path(model).name.removesuffix(".gguf") or model
            if (name, short(source)) in found:
                raise ValueError(
                    f"two models or data sets are called {name} on {short(source)}: one of them "
                    "must be renamed, or left out"
                )
            found[name, short(source)] = _audited(model, name, samples, options, rows, size)
    return found


def read(name: str, count: int) -> Any:
    """Samples by name: what ``taut audit`` reads, and the paper's columns of its data sets."""
    from taut.audit._data import read_samples

    column = next((c for key, c in COLUMNS.items() if key in name.lower()), None)
    return read_samples([name], count, column if name.startswith("hf:") else None)


def _audited(
    place: str, label: str, samples: Any, options: Options, rows: int, size: int
) -> Record:
    from taut.audit._command import Options as Asked
    from taut.audit._resume import audited

    asked = Asked(
        [], None, None, "float32", "cpu", size, 256, len(samples.items), list(options.norms),
        sorted(options.epsilons), 0.45, None, options.seed, None, options.folder / "audits",
        as_json=False, show=0, trust_remote_code=False, sampled=len(samples.items), rows=rows,
    )  # fmt: skip
    record, _ = audited(place, label, samples, asked)
    if record is None or not record.complete:
        raise KeyboardInterrupt("stopped before all of the data was seen")
    if not record.layers:
        raise ValueError(f"no attention was seen in {label}")
    return record


def short(name: str) -> str:
    return name.split(":")[1].split("/")[-1] if name.startswith("hf:") else Path(name).stem


def _result(
    name: str, title: str, records: dict[tuple[str, str], Record], options: Options,
    near: list[Claim],
) -> Result:  # fmt: skip
    claims, plots, rows, tops = [], [], [], []
    lengths: dict[str, Curve] = {}
    for (model, data), record in records.items():
        grids = [layer.grid for layer in record.layers if layer.grid is not None]
        most = {
            what: np.max([getattr(grid, what) for grid in grids], axis=0)
            for what in ("random", "worst", "lower", "upper")
        }
        exact = max(head["largest"] for head in record.heads)
        seen = sum(head["rows"] for head in record.heads)
        tried = sum(grid.rows for grid in grids)
        where = f"{model} on {data}"
        tops.append(float(most["random"].max()))
        claims += [
            Claim(f"{where}: one random direction for each of {tried:,} rows, p and ε", "below 0.5",
                  f"largest {below(tops[-1])}", tops[-1] < 0.5),
            Claim(f"{where}: exact l2 constants of all {seen:,} rows", "at most 0.5",
                  f"largest {below(exact)}", exact <= 0.5),
        ]  # fmt: skip
        steps = list(grids[0].epsilons)
        plots += ratio_plots(where, steps, grids[0].norms, most["random"], most["worst"])
        counts, shares = (sum(getattr(g, what) for g in grids) for what in ("counts", "shares"))
        for j, p in enumerate(grids[0].norms):
            random, worst = float(most["random"][0, j]), float(most["worst"][0, j])
            mean = float(shares[:, j].sum() / counts.sum())
            rows.append([where, exponent_name(p), f"{random:.4f}", f"{worst:.4f}",
                         bracket(most["lower"][j], most["upper"][j]), f"{mean:.3f}"])  # fmt: skip
        bins = np.flatnonzero(counts)
        two = grids[0].norms.index(2.0) if 2.0 in grids[0].norms else 0
        places = [float(2 ** (b + 1)) for b in bins]
        lengths[where] = Curve(where, places, (shares[bins, two] / counts[bins]).tolist())
    for claim in near:
        reached = max(tops)
        claims.append(replace(claim, found=f"largest {below(reached)}", agrees=reached >= NEAR))
    several = any(len(curve.x) > 1 for curve in lengths.values())  # vision models have one length
    if several:
        plots.append(
            Plot("What a random direction reaches of the worst one, l2", "keys of a row, at most",
                 "mean share", list(lengths.values()), log_x=True, log_y=True)
        )  # fmt: skip
    header = ["where", "p", "random, largest", "worst, largest",
              "largest local constant of these rows", "mean share of a row"]  # fmt: skip
    return Result(
        name,
        title,
        {"norms": list(options.norms), "epsilons": sorted(options.epsilons), "seed": options.seed,
         "samples": [record.samples for record in records.values()],
         "rows measured": [sum(g.grid.rows for g in r.layers if g.grid) for r in records.values()]},
        claims,
        [Table(f"Steps of {sorted(options.epsilons)[0]:g} on the same rows", header, rows)],
        plots,
        ["The paper moves all rows of scores along random directions and reports the largest "
         "ratio. Here some rows of every layer and sample are moved, and beside them stand the "
         "exact local constants of all rows, and what the worst direction reaches on the rows "
         "that were moved. A random direction misses most of a row of many keys: the last "
         "column shows the share of the worst direction's ratio that a random one reaches, for "
         "the same row and step, in the mean.",
         *(["", "The largest random ratio of very many rows can be close to ½ all the same, "
            "because a row of two or three keys, at the beginning of a text, leaves a random "
            "direction little to miss."] if several else [])],
    )  # fmt: skip
