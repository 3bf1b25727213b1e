"""Record: what an audit found, with everything that is needed to read or repeat it."""

from __future__ import annotations

import copy
import platform
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from taut._files import write_whole
from taut._json import plain, sealed
from taut._optional import needing
from taut.audit._grid import Grid
from taut.audit._head_state import BINS, NEAR, HeadState, series
from taut.audit._parse import count, facts, pair, part, read_record, spans, words
from taut.audit._spans import Span, joined, said, shared
from taut.audit._spans import count as counted

VERSION = 4


@dataclass
class Layer:
    """One softmax of attention in a model: the module that runs it, and its heads."""

    path: str
    call: int  # which softmax of the module in one forward pass, from 1 on
    state: HeadState
    grid: Grid | None = None  # S1's empirical constants on a sample of the rows
    # The first sample of the first batch in which it was seen, and its place in that batch: the
    # order of layers is theirs, in whatever order batches come in.
    since: tuple[int, int] = (0, 0)

    @property
    def name(self) -> str:
        """The module, and which of its softmaxes if it has several."""
        return self.path if self.call == 1 else f"{self.path} ({self.call})"

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {
            "path": self.path,
            "call": self.call,
            "since": list(self.since),
            **self.state.to_dict(),
            "grid": None if self.grid is None else self.grid.to_dict(),
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Layer:
        """The layer that :meth:`to_dict` wrote; a ValueError says what is wrong with the data."""
        path, call = part(data, "path", str, "a layer"), count(data, "call", "a layer", least=1)
        grid = None if data.get("grid") is None else Grid.from_dict(data["grid"])
        since = pair(data, "since", "a layer")
        return cls(path, call, HeadState.from_dict(data), grid, since)


@dataclass
class Record:
    """The result of an audit: :func:`taut.audit.run`.

    Attributes
    ----------
    model, data, settings, versions
        What was audited, on what and how.
    layers
        In the order in which the model runs them.
    seen
        Which samples were seen: sorted ranges, each (first, one after the last); ``samples`` is
        how many.
    complete
        Whether all of the data was.
    missed
        Attention that could not be seen: module and operation. Never empty silently.
    tokens
        Text at the places of the largest constants, by layer and head, where it is known.
    logits
        The final logits, times λ, where they were asked for: one head, whose rows are predictions.
    identity
        Everything that the numbers depend on besides data and settings: weights, configuration,
        code, tokenizer and versions; digests where it is long. An audit is taken up again or its
        record reused only if all of it is the same.
    """

    model: dict[str, Any]
    data: dict[str, Any]
    settings: dict[str, Any]
    layers: list[Layer] = field(default_factory=list)
    seen: list[Span] = field(default_factory=list)
    complete: bool = False
    missed: list[tuple[str, str]] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    logits: Layer | None = None
    versions: dict[str, str] = field(default_factory=lambda: _versions())
    identity: dict[str, Any] = field(default_factory=dict)

    @property
    def samples(self) -> int:
        """How many samples were seen."""
        return counted(self.seen)

    @property
    def heads(self) -> list[dict[str, Any]]:
        """One line for each head, in the order of the model."""
        return [row for layer in self.layers for row in _rows(layer, self.tokens)]

    @property
    def predictions(self) -> dict[str, Any] | None:
        """The line of the final logits, like those of the heads."""
        return None if self.logits is None else _rows(self.logits, self.tokens)[0]

    @property
    def ranked(self) -> list[dict[str, Any]]:
        """The heads, the most sensitive first: by the mean of their constants in l2."""
        return sorted(self.heads, key=lambda row: -row["mean"] if row["rows"] else 1.0)

    def layer(self, path: str, call: int, fresh: HeadState) -> Layer:
        """The layer of this name, made with a fresh state if it is new."""
        for layer in self.layers:
            if (layer.path, layer.call) == (path, call):
                if layer.state.heads != fresh.heads:
                    raise ValueError(
                        f"{path} has {fresh.heads} heads now and had {layer.state.heads}"
                    )
                return layer
        self.layers.append(Layer(path, call, fresh))
        return self.layers[-1]

    def merge(self, other: Record) -> None:
        """Take in what another process saw of the same model: all of it, or nothing at all.

        The samples of both must be different ones, as told by their numbers.
        """
        self._fits(other)
        known = {layer.name: layer for layer in self.layers}
        for theirs in other.layers:
            own = theirs.state
            mine = self.layer(
                theirs.path, theirs.call, HeadState(own.heads, own.norms, own.threshold)
            )
            mine.since = min(mine.since, theirs.since) if mine.name in known else theirs.since
            self._join(mine, theirs, other.tokens)
        self.layers.sort(key=lambda layer: layer.since)
        if other.logits is not None:
            own = other.logits.state
            fresh = HeadState(own.heads, own.norms, own.threshold)
            self.logits = self.logits or Layer(other.logits.path, other.logits.call, fresh)
            self._join(self.logits, other.logits, other.tokens)
        self.seen = joined([*self.seen, *other.seen])
        self.missed = sorted({*self.missed, *other.missed})
        self.complete &= other.complete

    def _fits(self, other: Record) -> None:
        """Raise an error if another record cannot be merged."""
        known = {layer.name: layer for layer in (*self.layers, self.logits) if layer is not None}
        for theirs in (*other.layers, other.logits):
            mine = None if theirs is None else known.get(theirs.name)
            if mine is None or theirs is None:
                continue
            mine.state.fits(theirs.state)
            if mine.grid is not None and theirs.grid is not None:
                mine.grid.fits(theirs.grid)
        if twice := shared(self.seen, other.seen):
            raise ValueError(
                f"cannot merge records that hold the same samples ({said(twice)}): number them "
                "with first= where several processes audit"
            )

    def _join(self, mine: Layer, theirs: Layer, tokens: dict[str, str]) -> None:
        mine.state.merge(theirs.state)
        for h in range(mine.state.heads):  # the token goes with the place that has won
            key = f"{mine.name}/{h}"
            won = (mine.state.places["two"][h] == theirs.state.places["two"][h]).all()
            if won and key in tokens:
                self.tokens[key] = tokens[key]
            elif won:
                self.tokens.pop(key, None)
        if mine.grid is None:
            mine.grid = copy.deepcopy(theirs.grid)
        elif theirs.grid is not None:
            mine.grid.merge(theirs.grid)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and words."""
        return {
            "taut_audit": VERSION,
            "model": plain(self.model),
            "data": plain(self.data),
            "settings": plain(self.settings),
            "versions": plain(self.versions),
            "identity": plain(self.identity),
            "samples": self.samples,
            "seen": [list(span) for span in self.seen],
            "complete": self.complete,
            "missed": [list(item) for item in self.missed],
            "tokens": self.tokens,
            "layers": [layer.to_dict() for layer in self.layers],
            "logits": None if self.logits is None else self.logits.to_dict(),
        }

    def to_json(self) -> str:
        """What :meth:`save` writes: :meth:`to_dict` with a checksum."""
        return sealed(self.to_dict())

    def save(self, file: Path) -> None:
        """Write it as JSON with a checksum, whole or not at all."""
        write_whole(self.to_json(), file)

    @classmethod
    def load(cls, file: Path) -> Record:
        """The record in a file; a ValueError with the name of the file says why there is none."""
        data = read_record(Path(file), VERSION)
        try:
            layers = [Layer.from_dict(each) for each in part(data, "layers", list)]
            logits = None if data.get("logits") is None else Layer.from_dict(data["logits"])
            _alike(layers)
            seen = spans(data)
            return cls(
                facts(data, "model"), facts(data, "data"), facts(data, "settings"), layers,
                seen, part(data, "complete", bool),
                [(a, b) for a, b in (words(pair, 2) for pair in part(data, "missed", list))],
                words(part(data, "tokens", dict)), logits, facts(data, "versions"),
                facts(data, "identity"),
            )  # fmt: skip
        except ValueError as error:
            raise ValueError(f"{file} is not a whole record of an audit: {error}") from None

    def to_pandas(self) -> Any:
        """The heads as a pandas.DataFrame."""
        with needing("to_pandas needs pandas", packages="pandas"):
            import pandas

        return pandas.DataFrame(self.heads)

    def _repr_html_(self) -> str:
        """The record in a notebook: its heat map and its most sensitive heads."""
        from taut.audit._report import fragment

        return fragment(self)

    def __str__(self) -> str:
        lines = [f"{self.model.get('name', 'model')}: {self.samples} samples"]
        lines += [
            f"  {row['layer']} head {row['head']}: mean {row['mean']:.3f}, largest "
            f"{row['largest']:.3f} of 0.5"
            for row in self.ranked[:10]
            if row["rows"]
        ]
        return "\n".join(lines)


def _alike(layers: list[Layer]) -> None:
    """Raise an error where layers cannot be those of one audit: they share settings, not names."""
    if len({layer.name for layer in layers}) < len(layers):
        raise ValueError("two layers have the same name")
    if len({(layer.state.norms, layer.state.threshold) for layer in layers}) > 1:
        raise ValueError("its layers have different norms or thresholds")
    grids = [layer.grid for layer in layers if layer.grid is not None]
    if len({(grid.epsilons, grid.norms) for grid in grids}) > 1:
        raise ValueError("its grids have different step sizes or norms")


def _rows(layer: Layer, tokens: dict[str, str]) -> list[dict[str, Any]]:
    state = layer.state
    count = np.maximum(state.counts["rows"], 1)
    means = {name: total / count for name, total in state.sums.items()}
    quantiles = {share: state.quantile("two", share) for share in (0.05, 0.5, 0.95)}
    near = state.histograms["two"][:, round(NEAR * BINS) :].sum(axis=1)
    return [
        {
            "layer": layer.name,
            "head": h,
            "rows": int(state.counts["rows"][h]),
            "mean": float(means["two"][h]),
            "mean_1": float(means["one"][h]),
            "q05": float(quantiles[0.05][h]),
            "median": float(quantiles[0.5][h]),
            "q95": float(quantiles[0.95][h]),
            "largest": float(state.maxima["two"][h]),
            "largest_1": float(state.maxima["one"][h]),
            "sample": int(state.places["two"][h, 0]),
            "query": int(state.places["two"][h, 1]),
            "token": tokens.get(f"{layer.name}/{h}", ""),
            "near": float(near[h] / count[h]),
            "above": float(state.counts["above"][h] / count[h]),
            "entropy": float(means["entropy"][h]),
            "evenness": float(means["evenness"][h]),
            "top": float(means["top"][h]),
            "first": float(means["first"][h]),
            "range": float(state.maxima["range"][h]),
            "affinity": float(state.affinity[h]),
            **{
                f"{what}_{p:g}": float(values[series(p)][h])
                for p in state.norms
                for what, values in (("mean", means), ("largest", state.maxima))
            },
            "hidden": int(state.counts["hidden"][h]),
            "broken": int(state.counts["broken"][h]),
        }
        for h in range(state.heads)
    ]


def _versions() -> dict[str, str]:
    import torch

    import taut

    found = {"taut": taut.__version__, "torch": torch.__version__, "numpy": np.__version__}
    found["python"] = platform.python_version()
    try:
        import transformers

        found["transformers"] = transformers.__version__
    except ImportError:
        pass
    return found
