"""run: a model on batches of data, every softmax measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from taut._checks import exponent, real_number, whole_number
from taut.audit._affinity import affinity
from taut.audit._capture import Watch, capture, real_rows
from taut.audit._grid import EPSILONS, NORMS, ROWS, SAMPLES, Grid, pick, ratios
from taut.audit._head_state import LIMIT, NEAR, HeadState
from taut.audit._identity import identify
from taut.audit._interrupt import uninterrupted
from taut.audit._layout import Rows, arranged, heads_of
from taut.audit._measure import measure
from taut.audit._model import call, describe, logits_of
from taut.audit._record import Layer, Record
from taut.audit._seen import Seen
from taut.audit._sources import Sources, batch_size
from taut.audit._spans import said, shared

Tokens = Callable[[int, int], str]
LOGITS = 1 << 20  # the place of the final logits among the layers, where rows are drawn


def fresh_record(model: nn.Module, name: str, place: str = "") -> Record:
    """A record in which nothing was seen yet; ``place`` is where the model was loaded from."""
    identity = identify(model, place)
    return Record(describe(model, name, identity), {}, {}, identity=identity)


class Auditor:
    """An audit in progress: feed it batches, then read its record.

    Parameters
    ----------
    model
        Any module; it is run as it is, in its mode, and left as it was.
    record
        To go on with; a new one if not given.
    name
        Of the model, for a new record.
    norms, epsilons, seed, threshold, logits, sampled, rows
        As in :func:`run`.
    """

    def __init__(
        self,
        model: nn.Module,
        record: Record | None = None,
        *,
        name: str = "",
        norms: Sequence[float] = NORMS,
        epsilons: Sequence[float] = EPSILONS,
        seed: int = 0,
        threshold: float = NEAR * LIMIT,
        logits: float | None = None,
        sampled: int = SAMPLES,
        rows: int = ROWS,
    ) -> None:
        self.model = model
        self._threshold = _between(threshold, "threshold", 0.0, LIMIT)
        self._logits = None if logits is None else _between(logits, "logits", 0.0, math.inf)
        self._epsilons = [_between(epsilon, "epsilon", 0.0, math.inf) for epsilon in epsilons]
        self._norms = [exponent(p) for p in norms]
        self._seed = whole_number(seed, name="seed", least=0)
        self._sampled = whole_number(sampled, name="sampled", least=0)
        self._rows = whole_number(rows, name="rows", least=1)
        self.record = record or fresh_record(model, name)
        self._modules = dict(getattr(model, "_orig_mod", model).named_modules())
        self._calls: dict[str, int] = {}
        self._samples = np.zeros(0, dtype=np.int64)
        self._sources: Sources | None = None
        self._spoken: dict[str, str] = {}  # the argument whose tokens a layer's queries are
        self._batch = Record({}, {}, {})
        self._picked: list[tuple[Layer, Any]] = []

    def add(self, inputs: Any, *, tokens: Tokens | None = None, first: int | None = None) -> None:
        """Run the model on a batch and take in all its softmaxes.

        ``inputs`` is a dict of keyword arguments, a tuple or one tensor; ``first`` the number of
        its first sample, where they are not taken in order.
        """
        size = batch_size(inputs, self.model)
        after = self.record.seen[-1][1] if self.record.seen else 0
        start = after if first is None else whole_number(first, name="first", least=0)
        if twice := shared(self.record.seen, [(start, start + size)]):
            raise ValueError(f"samples {said(twice)} are in the record already")
        self._samples = np.arange(start, start + size)
        self._spoken = {}
        self._batch, self._picked = Record({}, {}, {}, complete=self.record.complete), []
        plain = getattr(self.model, "_orig_mod", self.model)
        with torch.no_grad(), capture(self.model, self._visit) as watch:
            self._sources = watch.sources
            fresh = plain.register_forward_pre_hook(lambda *_: self._calls.clear())
            try:
                output = call(self.model, inputs)
            finally:
                fresh.remove()
            if self._logits is not None:
                self._predict(watch, logits_of(output), self._logits)
        self._batch.missed += [(missed.path, missed.operation) for missed in watch.missed]
        self._measure_picked()
        self._batch.seen = [(start, start + size)]
        for place, layer in enumerate(self._batch.layers):
            layer.since = (start, place)
        if tokens is not None:
            self._name(tokens, start)
        with uninterrupted():  # a batch counts whole or not at all
            self.record.merge(self._batch)

    def _visit(self, seen: Seen) -> None:
        call = self._calls[seen.path] = self._calls.get(seen.path, 0) + 1
        assert self._sources is not None
        try:
            rows = arranged(seen, self._sources, heads_of(self._modules.get(seen.path)))
        except ValueError as error:
            self._batch.missed.append((seen.path, str(error)))
            return
        layer = self._batch.layer(seen.path, call, self._fresh(rows.scores.shape[1]))
        self._spoken[layer.name] = rows.source
        self._take(layer, self._batch.layers.index(layer), rows)
        bound = affinity(rows, seen.product)
        layer.state.affinity = np.maximum(layer.state.affinity, bound)

    def _fresh(self, heads: int) -> HeadState:
        return HeadState(heads, self._norms, self._threshold)

    def _take(self, layer: Layer, place: int, rows: Rows) -> None:
        """Keep the numbers of rows; ``place`` is the number of the layer in the model."""
        found = measure(rows, layer.state.norms)
        known = rows.samples >= 0  # numbers of samples, where rows belong to one
        samples = np.where(known, self._samples[np.maximum(rows.samples, 0)], -1)
        layer.state.add(found.values, samples, rows.queries, found.kept, found.broken)
        if self._epsilons and self._norms:
            layer.grid = layer.grid or Grid(self._epsilons, self._norms)
            picked = pick(
                rows, found.kept, samples, place, self._seed, first=self._sampled, count=self._rows
            )
            self._picked += [(layer, row) for row in picked]

    def _measure_picked(self) -> None:
        """S1's constants of the rows that were taken of all layers, at once: this is faster."""
        if self._picked:
            layers, rows = zip(*self._picked, strict=True)
            seed = int(np.random.default_rng((self._seed, self._samples[0])).integers(1 << 31))
            found = ratios(rows, self._epsilons, self._norms, seed)
            for layer in {id(layer): layer for layer in layers}.values():
                assert layer.grid is not None
                layer.grid.take(found, np.array([other is layer for other in layers]))

    def _predict(self, watch: Watch, logits: torch.Tensor, scale: float) -> None:
        """The final logits, (samples, ..., classes), as rows of one head."""
        layer = self._batch.logits = Layer("logits", 1, self._fresh(1))
        real = real_rows(watch, logits)
        for index in range(len(logits)):  # one at a time: vocabularies are large
            scores = logits[index].reshape(1, 1, -1, logits.shape[-1]) * scale
            part = None if real is None else real[index].reshape(1, 1, -1)
            places = np.arange(scores.shape[2])[None, None]
            known = np.array([index if len(logits) == len(self._samples) else -1])
            rows = Rows(scores, scores.softmax(dim=-1), known, places, part)
            self._take(layer, LOGITS, rows)

    def _name(self, tokens: Tokens, start: int) -> None:
        """Keep the text at the places of maxima."""
        layers = [x for x in self._batch.layers if self._spoken[x.name] == "input_ids"]
        if self._batch.logits is not None:
            layers.append(self._batch.logits)
        for layer in layers:
            for h, (sample, query) in enumerate(layer.state.places["two"]):
                if sample >= start:
                    word = tokens(int(sample - start), int(query))
                    self._batch.tokens[f"{layer.name}/{h}"] = word


def _between(value: float, name: str, low: float, high: float) -> float:
    found = real_number(value, name=name)
    if not low < found < high:
        raise ValueError(f"{name} must be a number between {low:g} and {high:g}, got {value}")
    return found


def run(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    name: str = "",
    norms: Sequence[float] = NORMS,
    epsilons: Sequence[float] = EPSILONS,
    seed: int = 0,
    threshold: float = NEAR * LIMIT,
    logits: float | None = None,
    sampled: int = SAMPLES,
    rows: int = ROWS,
) -> Record:
    """Audit a model on batches of data.

    Parameters
    ----------
    model
        Any PyTorch or Hugging Face model. It is run as it is and left as it was.
    batches
        What it is called with: dicts of keyword arguments, tuples, or tensors. Rows of padding,
        where ``attention_mask`` is 0, do not count.
    name
        Of the model, for the record.
    norms
        Exponents: for 1, 2 and ∞ the constants of all rows are exact, for others there is an upper
        bound of every row.
    epsilons, seed
        Step sizes of S1's empirical constants in these norms, which are measured on some of the
        rows; an empty list leaves them out.
    threshold
        Rows whose constant in l2 is at least this are counted.
    logits
        Also measure the final logits, multiplied with this inverse temperature λ: then the model
        need not have attention.
    sampled, rows
        From how many samples rows are taken for S1's empirical constants, and how many of each
        layer from each.

    Returns
    -------
    Record
        ``.heads`` lists every head, ``.ranked`` the most sensitive first, ``.to_pandas()`` makes a
        table, ``.save`` writes it down.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> record = run(layer, [torch.randn(3, 5, 8)])
    >>> [row["rows"] for row in record.heads]
    [15, 15]
    >>> all(row["largest"] <= 0.5 for row in record.heads)
    True
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    auditor = Auditor(
        model, name=name, norms=norms, epsilons=epsilons, seed=seed, threshold=threshold,
        logits=logits, sampled=sampled, rows=rows,
    )  # fmt: skip
    for batch in batches:
        auditor.add(batch)
    if not auditor.record.samples:
        raise ValueError("there is no data: batches is empty")
    if not auditor.record.layers and not auditor.record.missed and logits is None:
        raise ValueError(
            "no attention was seen: the model has no softmax whose output multiplies values; "
            "logits=1.0 measures what comes out of it"
        )
    auditor.record.complete = True
    return auditor.record
