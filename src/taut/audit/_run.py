"""run: a model on batches of data, every softmax measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from taut._checks import exponent, real_number, whole_number
from taut.audit._capture import Missed, Seen, capture
from taut.audit._grid import EPSILONS, NORMS, Grid
from taut.audit._layout import arranged, batch_size, heads_of
from taut.audit._measure import measure
from taut.audit._record import Record

Tokens = Callable[[int, int], str]


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
    epsilons, norms, seed
        Step sizes and exponents of the empirical constants on a sample of the rows, and its seed.
    """

    def __init__(
        self,
        model: nn.Module,
        record: Record | None = None,
        *,
        name: str = "",
        epsilons: Sequence[float] = EPSILONS,
        norms: Sequence[float] = NORMS,
        seed: int = 0,
    ) -> None:
        self.model = model
        self._epsilons = [epsilon_of(epsilon) for epsilon in epsilons]
        self._norms = [exponent(p) for p in norms]
        self._seed = whole_number(seed, name="seed", least=0)
        self.record = record or Record(describe(model, name), {}, {})
        self._modules = dict(getattr(model, "_orig_mod", model).named_modules())
        self._calls: dict[str, int] = {}
        self._samples = np.zeros(0, dtype=np.int64)
        self._real: torch.Tensor | None = None

    def add(self, inputs: Any, *, tokens: Tokens | None = None, first: int | None = None) -> None:
        """Run the model on a batch and take in all its softmaxes.

        ``inputs`` is a dict of keyword arguments, a tuple or one tensor; ``first`` the number of
        its first sample, where they are not taken in order.
        """
        size = batch_size(inputs)
        start = self.record.samples if first is None else first
        self._samples = np.arange(start, start + size)
        real = inputs.get("attention_mask") if isinstance(inputs, dict) else None
        self._real = real.bool() if isinstance(real, torch.Tensor) and real.ndim == 2 else None
        plain = getattr(self.model, "_orig_mod", self.model)
        fresh = plain.register_forward_pre_hook(lambda *_: self._calls.clear())
        try:
            with torch.no_grad(), capture(self.model, self._visit) as watch:
                _call(self.model, inputs)
        finally:
            fresh.remove()
        self._note(watch.missed)
        self.record.samples += size
        if tokens is not None:
            self._name(tokens, start, size)

    def _visit(self, seen: Seen) -> None:
        call = self._calls[seen.path] = self._calls.get(seen.path, 0) + 1
        heads = heads_of(self._modules.get(seen.path))
        rows = arranged(seen.scores, seen.weights, heads, len(self._samples))
        queries = rows.scores.shape[2]
        real = self._real
        if real is not None and (real.shape[1] != queries or rows.windows != 1):
            real = None  # padding is known for the tokens of the input only
        found = measure(rows, real)
        samples = np.repeat(self._samples, rows.windows)
        if len(samples) != len(found.kept):
            samples = np.zeros(len(found.kept), dtype=np.int64)
        layer = self.record.layer(seen.path, call, rows.scores.shape[1])
        layer.state.add(found.values, samples, found.kept, found.broken)
        if self._epsilons and self._norms:
            layer.grid = layer.grid or Grid(self._epsilons, self._norms)
            place = self.record.layers.index(layer)
            layer.grid.add(rows, found.kept, samples, place, self._seed)

    def _note(self, missed: list[Missed]) -> None:
        self.record.missed = sorted({*self.record.missed, *map(tuple, missed)})  # type: ignore[arg-type]

    def _name(self, tokens: Tokens, start: int, size: int) -> None:
        """Keep the text at the places of maxima that this batch has moved."""
        for layer in self.record.layers:
            for h, (sample, query) in enumerate(layer.state.places["two"]):
                if start <= sample < start + size:
                    word = tokens(int(sample - start), int(query))
                    self.record.tokens[f"{layer.name}/{h}"] = word


def epsilon_of(value: float) -> float:
    """A step size."""
    found = real_number(value, name="epsilon")
    if not 0 < found < float("inf"):
        raise ValueError(f"epsilon must be a finite number > 0, got {value}")
    return found


def run(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    name: str = "",
    epsilons: Sequence[float] = EPSILONS,
    norms: Sequence[float] = NORMS,
    seed: int = 0,
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
    epsilons, norms, seed
        Step sizes and exponents of S1's empirical constants, which are measured on one row of each
        layer and of each of the first 64 samples; an empty list leaves them out.

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
    auditor = Auditor(model, name=name, epsilons=epsilons, norms=norms, seed=seed)
    for batch in batches:
        auditor.add(batch)
    if not auditor.record.samples:
        raise ValueError("there is no data: batches is empty")
    if not auditor.record.layers and not auditor.record.missed:
        raise ValueError(
            "no attention was seen: the model has no softmax whose output multiplies values"
        )
    auditor.record.complete = True
    return auditor.record


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, torch.Tensor):
        return model(inputs)
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def describe(model: nn.Module, name: str) -> dict[str, Any]:
    """What identifies a model: name, class, size, type and a checksum of its weights."""
    digest = hashlib.blake2b(digest_size=16)
    count = 0
    for key, weight in sorted(model.state_dict().items()):
        digest.update(key.encode())
        flat = weight.detach().cpu().contiguous().flatten()
        digest.update(flat.view(torch.uint8).numpy())
        count += weight.numel()
    first = next(model.parameters(), torch.zeros(0))
    return {
        "name": name or type(model).__name__,
        "class": type(model).__name__,
        "parameters": count,
        "dtype": str(first.dtype).removeprefix("torch."),
        "weights": digest.hexdigest(),
        "revision": getattr(getattr(model, "config", None), "_commit_hash", None),
    }
