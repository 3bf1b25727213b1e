"""What is recorded of a model while it is trained: every signal that could warn."""

from __future__ import annotations

import math
from typing import Any

import torch

from taut import local_lipschitz
from taut.reproduce.early_warning.decoder import WatchedDecoder

# The signals by the names that they have in records, and what they are called.
SIGNALS = {
    "loss": "training loss",
    "gradient_norm": "gradient norm",
    "largest_score": "largest score",
    "entropy": "entropy, mean",
    "lowest_entropy": "entropy, lowest head",
    "spectral_norm": "spectral norm, largest",
    "spectral_product": "spectral norms of queries times keys",
    "constant": "constants, mean",
    "constant_10": "constants, 10 % quantile",
    "constant_50": "constants, median",
    "constant_90": "constants, 90 % quantile",
    "constant_99": "constants, 99 % quantile",
    "lowest_constant": "constants, mean of the lowest head",
    "constant_change": "constants, change of a head",
}
CONSTANTS = tuple(name for name in SIGNALS if "constant" in name)


def attention_signals(model: WatchedDecoder, before: list[list[float]]) -> dict[str, Any]:
    """The signals of attention in the last pass; ``before``: constants of heads a record ago."""
    layers = [block["attention"] for block in model.blocks]
    # (layers, samples, heads, queries, keys)
    scores = torch.stack([each.scores for each in layers])
    seen = scores[..., ~layers[0].hidden]
    if bool(torch.isfinite(seen).all()):
        constants = local_lipschitz(scores).value.double()
        weights = scores.softmax(-1)
        entropies = torch.special.entr(weights).sum(-1).double()
    else:  # what follows from NaN is NaN
        constants = entropies = torch.full(scores.shape[:-1], math.nan, dtype=torch.float64)
    heads, entropy = (each.mean(dim=(1, 3)) for each in (constants, entropies))
    change = float((heads - torch.tensor(before)).abs().max()) if before else 0.0
    places = torch.tensor([0.1, 0.5, 0.9, 0.99], dtype=torch.float64)
    quantiles = constants.flatten().quantile(places).tolist()
    norms = [
        {role: float(torch.linalg.matrix_norm(getattr(each, role).weight.detach(), 2))
         for role in ("query", "key", "value", "output")}
        for each in layers
    ]  # fmt: skip
    width = layers[0].query.weight.shape[0] / layers[0].heads
    return {
        "largest_score": float(seen.max()),
        "entropy": float(entropy.mean()),
        "lowest_entropy": float(entropy.min()),
        "spectral_norm": max(max(each.values()) for each in norms),
        "spectral_product": max(each["query"] * each["key"] for each in norms) / math.sqrt(width),
        "constant": float(constants.mean()),
        **{f"constant_{q}": value for q, value in zip((10, 50, 90, 99), quantiles, strict=True)},
        "lowest_constant": float(heads.min()),
        "constant_change": change,
        "head_score": scores.amax(dim=(1, 3, 4)).tolist(),
        "head_entropy": entropy.tolist(),
        "head_constant": heads.tolist(),
    }
