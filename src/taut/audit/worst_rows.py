"""Read the rows with the largest constants while a batch is at hand: keys, words and pictures."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from taut.audit.few_keys import FEW_KEYS
from taut.audit.layer_record import LayerRecord
from taut.audit.record import Record
from taut.audit.sinks import TokenText
from taut.audit.statistics.head_state import ReadRow
from taut.audit.statistics.worst_row import WorstRow, worst_row
from taut.audit.thumbnails import thumbnail
from taut.audit.worst_samples import worst_samples
from taut.models import AttentionRows, RowMeasurements

NAMED = "input_ids"  # the argument whose tokens have names


def row_reader(
    rows: AttentionRows, measured: RowMeasurements, known: LayerRecord | None = None
) -> ReadRow:
    """A function that reads what is kept of a row.

    Of rows whose constants are below what a record knows already, it reads nothing: they are not
    the worst ones, and computing the scores of a row again takes time.
    """
    text = NAMED in (rows.source, rows.key_source)

    def read(sample: int, head: int, query: int) -> WorstRow | None:
        where = (sample, head, query)
        if known is not None:
            state = known.few if measured.values["seen"][where] < FEW_KEYS else known.many
            if measured.values["two"][where] < state.maxima["two"][head]:
                return None
        scores = rows.row(*where).double().cpu().numpy()
        places = rows.key_places(*where).tolist()
        return worst_row(scores, places, rows.place(*where), text=text)

    return read


def name_tokens(
    batch: Record, spoken: Mapping[str, tuple[str, str]], tokens: TokenText, start: int
) -> None:
    """Keep the words of the rows with the largest constants.

    ``spoken`` says of every layer which arguments of the model its queries and keys are tokens of.
    """
    for layer in batch.measured:
        queries, keys = spoken.get(layer.name, (NAMED, ""))  # the final logits have classes as keys
        for h, (sample, query) in enumerate(layer.state.places["two"]):
            if sample >= start and queries == NAMED:
                batch.tokens[f"{layer.name}/{h}"] = tokens(int(sample - start), int(query))
        for state in (layer.many, layer.few) if keys == NAMED else ():
            for h, (sample, _) in enumerate(state.places["two"]):
                row = state.worst[h]
                if row is not None and sample >= start:
                    state.worst[h] = row.named(partial(tokens, int(sample - start)))


def keep_pictures(batch: Record, inputs: Any, start: int) -> None:
    """Keep small pictures of the images that hold the rows with the largest constants."""
    images = inputs.get("pixel_values") if isinstance(inputs, Mapping) else None
    if images is None or images.ndim != 4:
        return
    for sample in worst_samples(batch):
        if 0 <= sample - start < len(images):
            batch.pictures[str(sample)] = thumbnail(images[sample - start])
