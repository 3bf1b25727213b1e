"""What constraints speak of, measured on a model: singular values, affinity maps, constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from taut import audit, control
from taut.reproduce.seq2seq.batches import Encoded, grouped, tensors
from taut.reproduce.seq2seq.methods import watch

PAIRS, PIECES = 64, 2000  # pairs that are looked at, and pieces in a batch


def sensitivity(model: Any, pairs: Sequence[Encoded]) -> dict[str, float]:
    """Facts about a model on some pairs.

    ``sigma_max`` is the largest singular value of all maps of attention and feed-forward networks;
    AM, LA and LF are the paper's penalties without their strength; the constants are the exact l2
    constants of all rows of all heads. AM needs scores that are products: cosine attention has
    none.
    """
    import torch

    batches = [tensors(pairs[:PAIRS], b) for b in grouped(pairs[:PAIRS], PIECES)]
    device = next(model.parameters()).device
    given = [{k: v.to(device) for k, v in batch.items() if k != "labels"} for batch in batches]
    maps = [w.matrix() for b in control.find_blocks(model) for w in b.weights.values()]
    found = {
        "sigma_max": max(float(torch.linalg.matrix_norm(m.detach().double(), 2)) for m in maps)
    }
    model.eval()
    products = not hasattr(model.config, "taut_attention")
    penalties = watch(model, parts=("AM", "LA", "LF") if products else ("LA", "LF"))
    sums: dict[str, float] = {}
    for batch in given:
        model(**batch)
        for name, value in penalties.values().items():
            sums[name] = sums.get(name, 0.0) + value / len(given)
    penalties.bake()
    found |= sums
    record = audit.run(model, given, norms=[2.0], epsilons=[])
    rows = sum(head["rows"] for head in record.heads)
    found["constant_mean"] = sum(h["mean"] * h["rows"] for h in record.heads) / rows
    found["constant_largest"] = max(head["largest"] for head in record.heads)
    return found
