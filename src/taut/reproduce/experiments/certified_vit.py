"""A vision transformer that is trained under a certificate, and what the certificate is worth."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from taut._base.json_files import plain
from taut._base.optional import needing
from taut._base.progress import shown
from taut.reproduce.kept_runs import kept_run
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Curve, Plot, Result, ResultTable

SEEDS, EPOCHS = 3, 12
METHODS = {  # method, blocks or hidden layers, temperature, hidden layer that sees all patches
    "LipschitzTransformer": ("taut", 1, 2.5, 256),
    "deel-torchlip, 1-Lipschitz MLP": ("torchlip", 2, 2.5, 0),
    "ordinary ViT, AdamW": ("plain", 1, 1.0, 0),
}
OURS = "LipschitzTransformer"
# Mean radii of an ordinary one-layer network of the same size, in raw pixels: docs/results.
KNOWN = "0.19 (as published), 0.33 (propagated bounds); attacks need 0.70"


def run(options: Options) -> Result:
    """Train each network from several seeds, certify and attack it."""
    if len(options.data) != 1:
        raise ValueError(
            "certified-vit needs MNIST's test images: --data FOLDER with t10k-images-idx3-ubyte.gz "
            "and t10k-labels-idx1-ubyte.gz in it"
        )
    with needing("certified-vit trains networks", "torch", "hf"):
        from taut.reproduce.lipschitz.digits import read_digits
        from taut.reproduce.lipschitz.image_run import CURVE, RADII, ImageRun, train_classifier
    digits = read_digits(Path(options.data[0]))
    epochs = 1 if options.quick else EPOCHS
    if options.quick:
        digits = digits._replace(
            train=digits.train[:1000], train_labels=digits.train_labels[:1000],
            held_out=digits.held_out[:100], held_out_labels=digits.held_out_labels[:100],
        )  # fmt: skip
    most = options.size(len(digits.held_out), 20)
    folder = options.folder / "certified-vit"
    found: dict[str, list[dict[str, Any]]] = {}
    remarks = []
    for label, (method, layers, temperature, head) in METHODS.items():
        seeds = range(options.seed, options.seed + (1 if options.quick else SEEDS))
        attacked = most if label == OURS else -(-most // 4)  # ours has to withstand the most
        runs = [ImageRun(method, layers, temperature, epochs, seed, head) for seed in seeds]

        def trained(each: ImageRun, attacked: int = attacked) -> dict[str, Any]:
            return dict(plain(train_classifier(each, digits, attacked, lambda *_: None)))

        try:
            found[label] = [
                kept_run(folder, each.name, (attacked, *digits), partial(trained, each))
                for each in shown(runs, len(runs), label)
            ]
        except (ImportError, FloatingPointError) as error:
            remarks.append(f"Not measured: {label} ({error}).")
    return _result(options, found, remarks, (RADII, CURVE, len(digits.train), epochs))


def _result(
    options: Options,
    found: dict[str, list[dict[str, Any]]],
    remarks: list[str],
    sizes: tuple[Sequence[float], Sequence[float], int, int],
) -> Result:
    radii, curve, trained, epochs = sizes
    ours = found[OURS]
    accuracy = min(run["accuracy"] for run in ours)
    radius = min(run["mean_radius"] for run in ours)
    broken = sum(run["broken"] for runs in found.values() for run in runs)
    tried = sum(run["attacked"] for runs in found.values() for run in runs if run["mean_radius"])
    claims = [
        Claim("accuracy on held-out images, each seed", "at least 95 %",
              f"at least {100 * accuracy:.1f} %", accuracy >= 0.95),
        Claim("mean certified l2 radius in raw pixels, each seed, a wrong image counting as 0",
              "at least 0.4", f"at least {math.floor(1000 * radius) / 1000:.3f}", radius >= 0.4),
        Claim(f"certified images that projected gradient steps break, of {tried}", "none",
              str(broken), broken == 0),
    ]  # fmt: skip
    rows = [[label, *_row(runs, radii)] for label, runs in found.items()]
    header = ["network", "accuracy", "mean radius", "of correct images",
              *[f"certified at {r:g}" for r in radii]]  # fmt: skip
    more = [[label, *_costs(runs)] for label, runs in found.items()]
    costs = ["network", "parameters", "bound", "radius without pairs", "radius in float32",
             "certified, attacked images", "attack needs", "broken",
             "processor seconds"]  # fmt: skip
    curves = [
        Curve(label, list(curve), np.mean([run["curve"] for run in runs], axis=0).tolist())
        for label, runs in found.items()
    ]
    return Result(
        "certified-vit",
        "A vision transformer trained under a certificate",
        {"images for training": trained, "epochs": epochs, "seeds": len(ours), "seed": options.seed,
         "held out": ours[0]["held_out"], "attacked": ours[0]["attacked"]},
        claims,
        [ResultTable("Certified accuracy, mean of the seeds and largest deviation", header, rows),
         ResultTable("Bounds, attacks and costs", costs, more)],
        [Plot("Certified accuracy, held-out images", "l2 radius, raw pixels",
              "share that is right and stays so", curves)],
        [*_remarks(trained, ours), *remarks],
        "aim",
    )  # fmt: skip


def _remarks(trained: int, ours: list[dict[str, Any]]) -> list[str]:
    return [
        "A vision transformer of one block, width 64, four heads and patches of 7 × 7 pixels, "
        "trained so that its logits move at most as far as the image does, in l2. Its attention, "
        "maps and activations keep lengths: all singular values are brought back to 1 after every "
        'step (`WeightLimits(model, method="orthogonal")`), the activation sorts pairs, and heads '
        "pay only for tokens that many others look at. A hidden layer of 256 units "
        "(`head=256`) sees all patches before the logits.",
        "",
        f"Data: MNIST's 10,000 test images, {trained:,} of them for training and "
        f"{ours[0]['held_out']:,} held out, pixels in [0, 1]. The training images are not used. "
        "Radii are l2 distances in these pixels. A radius is a margin over a constant that holds "
        "for all inputs (theorem margin-radius) and costs a forward pass. Logits are computed in "
        "double precision and their rounding is taken off; the second table has the same in single "
        "precision, whose proved errors are worst cases. A wrong image counts as 0 in the mean "
        "radius; DeepT takes the mean of the correct ones, which is the column after it.",
        "",
        f"For comparison, radii of DeepT's ordinary network, one layer, same width, correct "
        f"images: {KNOWN}.",
        "",
        "The hidden layer and the temperature were chosen on 1,000 of the training images, "
        "after training on the other 8,000 from seed 0: of 2, 2.5, 3, 3.5, 4 and 5 the "
        "temperature with the largest mean radius at an accuracy of at least 98 %. Radius and "
        "accuracy there were 1.12 and 97.7 %, **1.05 and 98.2 %**, 0.98 and 98.3 %, 0.92 and "
        "98.2 %, 0.88 and 98.1 %, 0.80 and 99.0 %. Without the hidden layer it was 0.75 and "
        "97.6 % at 4, and 512 units had 0.89 and 98.5 % there. deel-torchlip has the same "
        "temperature, with which it had 1.07 and 96.9 % on these images. Rates and the rest of "
        "the design had been chosen before, in trials of seed 0 with the held-out images in "
        "view. The rates of the other two networks were tuned less. At 0.003 one seed of "
        "deel-torchlip ended in NaN, so it has 0.001. The ordinary network was tried with 0.002 "
        "and 0.006, which gave the same accuracy, and had 94.5 % after 15 epochs.",
        "",
        "What it costs: about three times the processor time of the ordinary network for as many "
        "steps. It does not cost accuracy here, where epochs are few. Attention adds little on "
        "these images: its scores depend on the tokens by ±0.05 at most, so that it looks by "
        "position. Without the hidden layer everything before the logits sees a patch at a time, "
        "and the 1-Lipschitz MLP has larger radii: 0.92 against 0.78 (temperatures 3.5 and 4, "
        "held-out images). "
        "Distances of pairs of rows change nothing here, because rows that are orthonormal are √2 "
        "apart.",
        "",
        "What failed, in trials of one seed: weights whose singular values are only kept *below* 1 "
        "(`soft_cap`) reached a mean radius of 0.52 at 95 % in 8 epochs, and 0.64 with the hidden "
        "layer after 12 of 30, where training had let go of attention (share 0). A bound of "
        "attention from the range of its positions alone had to divide it by 5 for 16 patches. "
        "With residual averages that began at one half, temperature 2.5 ended in a linear "
        "classifier, 88 % at 0.59. Two blocks had smaller radii than one after a few epochs.",
    ]


def _spread(values: list[float], digits: int = 3, factor: float = 1.0) -> str:
    mean = float(np.mean(values))
    apart = max(abs(value - mean) for value in values)
    if mean and abs(mean) < 10.0**-digits:
        return f"{factor * mean:.2g}"
    return f"{factor * mean:.{digits}f} ± {factor * apart:.{digits}f}"


def _row(runs: list[dict[str, Any]], radii: Sequence[float]) -> list[str]:
    held = [[run["certified"][str(r)] for run in runs] for r in radii]
    return [
        _percent([run["accuracy"] for run in runs]),
        _spread([run["mean_radius"] for run in runs]),
        _spread([run["mean_radius_of_correct"] for run in runs]),
        *[_percent(each) for each in held],
    ]


def _percent(values: list[float]) -> str:
    return f"{_spread(values, 1, 100.0)} %" if any(values) else "0 %"


def _costs(runs: list[dict[str, Any]]) -> list[str]:
    def mean(name: str) -> float:
        return float(np.mean([run[name] for run in runs]))

    bound = max(run["bound"] for run in runs)
    return [
        f"{runs[0]['parameters']:,}",
        f"{bound:.4g}" if math.isfinite(bound) else "none",
        f"{mean('mean_radius_without_pairs'):.3g}",
        f"{mean('mean_radius_in_float32'):.3g}",
        f"{mean('certified_radius_of_attacked'):.3g}",
        f"{mean('attack_radius_of_correct'):.3g}",
        f"{sum(run['broken'] for run in runs)} of {sum(run['attacked'] for run in runs)}"
        if mean("mean_radius")
        else "–",
        f"{mean('processor_seconds'):.0f}",
    ]
