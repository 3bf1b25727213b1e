"""Numbers of every attention row of a model, batch by batch; batches that are done are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from taut._base.progress import shown
from taut._base.settings import AuditSettings
from taut.reproduce.data_sets import short
from taut.reproduce.kept_arrays import Arrays, kept

if TYPE_CHECKING:
    from taut.models import AttentionRows, Samples

# By the number of the layer, the number of the first sample of the batch, and its rows there.
MeasureLayer = Callable[[int, int, "AttentionRows"], Arrays]


def every_row(
    place: str, samples: Samples, measure: MeasureLayer, *, size: int, folder: Path,
    key: dict[str, Any],
) -> Arrays:  # fmt: skip
    """What ``measure`` finds in all layers and batches, joined along the first axis.

    The rows are those of an audit with batches of ``size``. ``key`` is what decides the numbers
    besides the model and the samples: batches that were measured with the same are read from
    ``folder``.
    """
    from taut.models import Samples, identify, identify_preprocessor, load, preprocessor_of

    model = load(place, dtype="float32")
    reader = preprocessor_of(samples, model, place)
    identity = identify(model, place, code=("taut.reproduce.every_row", measure.__module__))
    firsts = range(0, len(samples.items), size)
    found = []
    for first in shown(firsts, len(firsts), f"batches of {short(samples.source)}"):
        batch = Samples(samples.kind, samples.items[first : first + size], samples.source)
        mark = {
            "model": identity, "reader": identify_preprocessor(reader), "first": first,
            "samples": batch.description["digest"], **key,
        }  # fmt: skip

        def make(first: int = first) -> Arrays:
            return _measured(model, place, samples, first, size, reader, measure)

        # A model that cannot be identified could be any model: nothing is reused.
        found.append(make() if identity["unknown"] else kept(folder, mark, make))
    return {name: np.concatenate([one[name] for one in found]) for name in found[0]}


def _measured(
    model: Any, place: str, samples: Samples, first: int, size: int, reader: Any,
    measure: MeasureLayer,
) -> Arrays:  # fmt: skip
    """All layers of one batch."""
    import torch

    from taut.models import attention_rows, batches, call_model, capture, number_of_heads

    layers: list[Arrays] = []
    modules = dict(model.named_modules())

    def visit(seen: Any) -> None:
        heads = number_of_heads(modules.get(seen.path))
        layers.append(measure(len(layers), first, attention_rows(seen, watch.inputs, heads)))

    (batch,) = batches(
        samples, model, place, [first], size=size, max_length=AuditSettings.max_length,
        reader=reader,
    )  # fmt: skip
    with torch.no_grad(), capture(model, visit) as watch:
        call_model(model, batch.inputs)
    if watch.missed:
        raise ValueError(f"attention of {place} cannot be seen: {watch.missed[0].path}")
    return {name: np.concatenate([layer[name] for layer in layers]) for name in layers[0]}
