"""Auditor: runs a model on one batch after the other and measures every softmax."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from taut._base.checks import whole_number
from taut._base.memory import give_back
from taut._base.settings import AuditSettings
from taut.audit.consequence.estimate import add_consequence
from taut.audit.drawn_queries import drawn_queries
from taut.audit.interrupt import uninterrupted
from taut.audit.layer_record import LayerRecord
from taut.audit.made import now
from taut.audit.record import Record
from taut.audit.sample_spans import said, shared
from taut.audit.sinks import TokenText
from taut.audit.statistics.affinity import affinity
from taut.audit.statistics.empirical_grid import Grid, pick, ratios
from taut.audit.statistics.head_state import HeadState
from taut.audit.worst_rows import NAMED, keep_pictures, name_tokens, row_reader
from taut.models import (
    AttentionRows,
    Captured,
    ModelInputs,
    SoftmaxCapture,
    WrittenScores,
    attention_rows,
    batch_size,
    call_model,
    capture,
    describe_model,
    identify,
    logits_of,
    measure_rows,
    number_of_heads,
    real_rows,
)

CODE = ("taut.audit.run",)  # with all that it imports: what numbers depend on
LONG = 1024  # keys, from which on freed blocks are worth giving back
LOGITS = 1 << 20  # the place of the final logits among the layers, where rows are drawn


def fresh_record(model: nn.Module, name: str, place: str = "") -> Record:
    """An empty record of a model; ``place`` is where the model was loaded from."""
    identity = identify(model, place, code=CODE)
    return Record(describe_model(model, name, identity), {}, {}, identity=identity)


class Auditor:
    """An audit in progress: feed it batches, then read its record.

    Parameters
    ----------
    model
        Any module. It is run in its own mode and left unchanged.
    record
        The record to continue; a new one by default.
    name
        Name of the model, for a new record.
    settings, options
        :class:`Settings`, and single ones of them by name: those that say how rows are measured
        count here.
    """

    def __init__(
        self,
        model: nn.Module,
        record: Record | None = None,
        *,
        name: str = "",
        settings: AuditSettings | None = None,
        **options: Any,
    ) -> None:
        self.model = model
        self.settings = replace(settings or AuditSettings(), **options)
        self.record = record or fresh_record(model, name)
        if not self.record.seen:  # the labels of its numbers depend on them
            self.record.settings = self.record.settings or self.settings.to_dict()
        if self.record.quick != self.settings.quick:
            raise ValueError(
                "the record holds exact constants or the bounds of a first look, and the settings "
                "ask for the other: pass the same quick="
            )
        self._modules = dict(getattr(model, "_orig_mod", model).named_modules())
        self._calls: dict[str, int] = {}
        self._samples = np.zeros(0, dtype=np.int64)
        self._inputs: ModelInputs | None = None
        # The arguments of the model whose tokens a layer's queries and keys are.
        self._spoken: dict[str, tuple[str, str]] = {}
        self._tokens: TokenText | None = None
        self._batch = Record({}, {}, {})
        self._picked: list[tuple[LayerRecord, Any]] = []

    def add(
        self, inputs: Any, *, tokens: TokenText | None = None, first: int | None = None
    ) -> None:
        """Run the model on a batch and measure all its softmaxes.

        ``inputs`` is a dict of keyword arguments, a tuple or one tensor; ``first`` is the number
        of its first sample, for batches that do not come in order.
        """
        size = batch_size(inputs, self.model)
        after = self.record.seen[-1][1] if self.record.seen else 0
        start = after if first is None else whole_number(first, name="first", least=0)
        if twice := shared(self.record.seen, [(start, start + size)]):
            raise ValueError(f"samples {said(twice)} are in the record already")
        self._samples = np.arange(start, start + size)
        self._spoken, self._tokens = {}, tokens
        complete = self.record.complete
        self._batch = Record({}, {}, dict(self.record.settings), complete=complete)
        self._picked = []
        plain = getattr(self.model, "_orig_mod", self.model)
        with torch.no_grad(), capture(self.model, self._visit) as watch:
            self._inputs = watch.inputs
            fresh = plain.register_forward_pre_hook(lambda *_: self._calls.clear())
            try:
                output = call_model(self.model, inputs)
            finally:
                fresh.remove()
            if self.settings.logits is not None:
                self._predict(watch, logits_of(output), self.settings.logits)
        self._batch.missed += [(missed.path, missed.operation) for missed in watch.missed]
        self._measure_picked()
        if start < self.settings.consequence:
            count, seed = self.settings.consequence, self.settings.seed
            add_consequence(self._batch, self.model, inputs, self._samples, count, seed)
        self._batch.seen = [(start, start + size)]
        for place, layer in enumerate(self._batch.layers):
            layer.since = (start, place)
        if tokens is not None:
            name_tokens(self._batch, self._spoken, tokens, start)
        keep_pictures(self._batch, inputs, start)
        with uninterrupted():  # a batch counts whole or not at all
            self.record.merge(self._batch)
            self.record.made["date"] = now()

    def _visit(self, seen: Captured) -> None:
        call = self._calls[seen.path] = self._calls.get(seen.path, 0) + 1
        assert self._inputs is not None
        try:
            rows = attention_rows(seen, self._inputs, number_of_heads(self._modules.get(seen.path)))
        except ValueError as error:
            self._batch.missed.append((seen.path, str(error)))
            return
        layer = self._batch.layer(seen.path, call, self._fresh(rows.shape[1]))
        layer.fused = seen.fused
        self._spoken[layer.name] = (rows.source, rows.key_source)
        self._take(layer, self._batch.layers.index(layer), rows)
        bound = affinity(rows, seen.product)
        for state in (layer.many, layer.few):
            state.affinity = np.maximum(state.affinity, bound)
        if rows.reader.keys >= LONG:
            give_back()

    def _fresh(self, heads: int) -> HeadState:
        asked = self.settings
        return HeadState(heads, asked.norms, asked.threshold, theta=asked.theta)

    def _take(
        self, layer: LayerRecord, place: int, rows: AttentionRows, *, together: bool = False
    ) -> None:
        """Measure and keep rows; ``place`` is the number of the layer in the model.

        ``together`` keeps rows of few keys among the others, as classes may be few.
        """
        known = rows.samples >= 0  # numbers of samples, where rows belong to one
        samples = np.where(known, self._samples[np.maximum(rows.samples, 0)], -1)
        numbers = layer.state.numbers.values()
        found = measure_rows(
            rows, layer.state.norms,
            chosen=drawn_queries(rows, samples, self.settings),
            quick=self.settings.quick,
            more={each.key: each.measure for each in numbers if each.measure is not None},
        )  # fmt: skip
        keep = layer.many.add if together else layer.add
        before = None if together else self._before(layer)
        keep(found, samples, rows.queries, read=row_reader(rows, found, before))
        if not together and known.all():
            named = rows.key_source == NAMED
            layer.sinks.add(found, rows, self._tokens if named else None)
        settings = self.settings
        if settings.epsilons and settings.norms:
            layer.grid = layer.grid or Grid(settings.epsilons, settings.norms)
            picked = pick(
                rows,
                found.kept,
                samples,
                place,
                settings.seed,
                first=settings.sampled,
                count=settings.rows,
            )
            self._picked += [(layer, row) for row in picked]

    def _before(self, layer: LayerRecord) -> LayerRecord | None:
        """What the record knows of a layer from earlier batches."""
        same = [x for x in self.record.layers if (x.path, x.call) == (layer.path, layer.call)]
        return same[0] if same and same[0].state.heads == layer.state.heads else None

    def _measure_picked(self) -> None:
        """Measure the sampled rows of all layers at once, which is faster."""
        if self._picked:
            layers, rows = zip(*self._picked, strict=True)
            seed = int(
                np.random.default_rng((self.settings.seed, self._samples[0])).integers(1 << 31)
            )
            found = ratios(rows, self.settings.epsilons, self.settings.norms, seed)
            for layer in {id(layer): layer for layer in layers}.values():
                assert layer.grid is not None
                layer.grid.take(found, np.array([other is layer for other in layers]))

    def _predict(self, watch: SoftmaxCapture, logits: torch.Tensor, scale: float) -> None:
        """The final logits, (samples, ..., classes), as rows of one head."""
        layer = self._batch.logits = LayerRecord("logits", 1, self._fresh(1))
        real = real_rows(watch, logits)
        for index in range(len(logits)):  # one at a time: vocabularies are large
            scores = logits[index].reshape(1, 1, -1, logits.shape[-1]) * scale
            part = None if real is None else real[index].reshape(1, 1, -1)
            places = np.arange(scores.shape[2])[None, None]
            known = np.array([index if len(logits) == len(self._samples) else -1])
            rows = AttentionRows(WrittenScores(scores), places.shape, known, places, part)
            self._take(layer, LOGITS, rows, together=True)
