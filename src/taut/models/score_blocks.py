"""Scores of one attention, read in blocks of rows, so that no whole matrix is made for them.

Attention that a model writes out has its scores in a tensor. Fused attention has none: they are
computed here from queries and keys, block by block, beside the kernel that the model runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

Array = np.ndarray[Any, np.dtype[Any]]
BLOCK = 1 << 20  # scores in a block: 4 MB in single precision
LARGE_BLOCK = 1 << 25  # on accelerators
QUERIES = 128  # queries in a block of causal attention, whose later keys are not computed


class ScoreBlock(NamedTuple):
    """Scores of some rows, (..., keys), and their place among all rows.

    Keys that no row of the block sees may be left out at the end.
    """

    scores: torch.Tensor
    place: tuple[slice, slice, Any]  # along the three axes of the rows

    @property
    def weights(self) -> torch.Tensor:
        """Softmax of the scores."""
        return self.scores.softmax(dim=-1)

    def put(self, into: Array, numbers: Array) -> None:
        """Put numbers of each row of the block, (..., rows), into an array (..., all rows)."""
        first, second, third = self.place
        part = into[..., first, second, :]
        part[..., third] = numbers.reshape(part[..., third].shape)


class WrittenScores(NamedTuple):
    """Scores that a model has written out, keys last. The rows have the shape (1, 1, rows)."""

    whole: torch.Tensor

    @property
    def keys(self) -> int:
        """Number of keys of a row."""
        return self.whole.shape[-1]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the rows."""
        return (1, 1, self.whole.numel() // max(1, self.keys))

    def blocks(self, chosen: Array | None = None) -> Iterator[ScoreBlock]:
        """All rows, or those that are chosen by a boolean array of their shape."""
        flat = self.whole.reshape(-1, self.keys)
        step = max(1, BLOCK // max(1, self.keys))
        one = slice(0, 1)
        if chosen is None:
            for first in range(0, len(flat), step):
                yield ScoreBlock(
                    wide(flat[first : first + step]), (one, one, slice(first, first + step))
                )
            return
        rows = np.flatnonzero(chosen)
        for first in range(0, len(rows), step):
            part = rows[first : first + step]
            yield ScoreBlock(wide(flat[torch.from_numpy(part).to(flat.device)]), (one, one, part))

    def row(self, index: int) -> torch.Tensor:
        """Scores of one row."""
        return wide(self.whole.reshape(-1, self.keys)[index])


class FusedScores(NamedTuple):
    """Scores factor·⟨query, key⟩ + bias of fused attention. Rows are (batch, heads, queries).

    Several heads may share their keys: then ``key`` has fewer heads than ``query``.
    """

    query: torch.Tensor  # (batch, heads, queries, width)
    key: torch.Tensor  # (batch, key heads, keys, width)
    bias: torch.Tensor | None  # added, or True where a key is seen; (batch, heads, queries, keys)
    factor: float
    causal: bool  # query i sees keys up to i

    @property
    def keys(self) -> int:
        """Number of keys of a row."""
        return self.key.shape[2]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of the rows."""
        return (self.query.shape[0], self.query.shape[1], self.query.shape[2])

    @property
    def whole(self) -> torch.Tensor:
        """All scores at once: for small models."""
        return self.of_queries(0, self.shape[2])

    def of_queries(self, first: int, last: int) -> torch.Tensor:
        """Scores of the queries from ``first`` until before ``last`` with all keys."""
        all_of = slice(None)
        return self._scores(all_of, all_of, slice(first, last), self.keys, None)

    def blocks(self, chosen: Array | None = None) -> Iterator[ScoreBlock]:
        """All rows, or those that are chosen by a boolean array of their shape.

        Of chosen rows, a block holds those of all heads if any head has chosen them. The scores of
        a block are overwritten by the next one: blocks of their own would scatter the memory.
        """
        if not self.query.numel() or not self.key.numel():
            return
        batch, heads, count = self.shape
        most = max(self._block, self._group * self.keys)
        buffer = torch.empty(most, dtype=wide(self.query[:0]).dtype, device=self.query.device)
        if chosen is None:
            for first, last in _spans(count, self._queries_at_once()):
                size = (last - first) * self.keys
                for b in _spans(batch, self._block // (heads * size)):
                    for h in _spans(heads, self._block // size, self._group):
                        yield self._at(slice(*b), slice(*h), slice(first, last), buffer)
            return
        for one in range(batch):
            places = np.flatnonzero(chosen[one].any(axis=0))
            for first, last in _spans(len(places), self._queries_at_once()):
                for h in _spans(heads, self._block // ((last - first) * self.keys), self._group):
                    yield self._at(slice(one, one + 1), slice(*h), places[first:last], buffer)

    def row(self, index: int) -> torch.Tensor:
        """Scores of one row; masked keys at the end may be left out."""
        b, head, query = (int(i) for i in np.unravel_index(index, self.shape))
        first = head // self._group * self._group
        heads = slice(first, first + self._group)
        return self._at(slice(b, b + 1), heads, slice(query, query + 1)).scores[0, head - first, 0]

    @property
    def _group(self) -> int:
        """How many heads share their keys."""
        return self.query.shape[1] // self.key.shape[1]

    @property
    def _block(self) -> int:
        return BLOCK if self.query.device.type == "cpu" else LARGE_BLOCK

    def _queries_at_once(self) -> int:
        """Queries in a block; of causal attention fewer, as a block has the keys up to its last."""
        most = self._block // (self._group * self.keys)
        return min(most, QUERIES) if self.causal else most

    def _at(
        self, batch: slice, heads: slice, queries: Any, buffer: torch.Tensor | None = None
    ) -> ScoreBlock:
        last = queries.stop if isinstance(queries, slice) else int(queries[-1]) + 1
        seen = min(self.keys, last) if self.causal else self.keys
        found = self._scores(batch, heads, queries, seen, buffer)
        return ScoreBlock(found, (batch, heads, queries))

    def _scores(
        self, batch: slice, heads: slice, queries: Any, seen: int, buffer: torch.Tensor | None
    ) -> torch.Tensor:
        """Scores of some rows with the first keys, (batch, heads, queries, seen)."""
        if not isinstance(queries, slice):
            queries = torch.from_numpy(queries).to(self.query.device)
        group = self._group
        shared = slice(*(None if h is None else h // group for h in (heads.start, heads.stop)))
        q = wide(self.query[batch, heads][:, :, queries]) * self.factor
        k = wide(self.key[batch, shared, :seen])
        size, count, places, width = q.shape
        # Heads that share their keys are multiplied together, as further rows of one matrix.
        rows = q.reshape(size * count // group, group * places, width)
        if buffer is not None:
            buffer = buffer[: rows.shape[0] * rows.shape[1] * seen].reshape(*rows.shape[:2], seen)
        with torch.autocast(q.device.type, enabled=False):
            found = torch.bmm(rows, k.reshape(-1, *k.shape[2:]).transpose(1, 2), out=buffer)
        found = found.reshape(size, count, places, seen)
        if self.bias is not None:
            bias = self.bias.expand(*self.shape, self.keys)[batch, heads][:, :, queries, :seen]
            seeing = bias.dtype == torch.bool
            found = found.masked_fill_(~bias, -torch.inf) if seeing else found.add_(bias)
        if self.causal:
            own = torch.arange(self.shape[2], device=q.device)[queries]
            first = min(int(own[0]) + 1, seen)  # all rows see the keys before it
            later = torch.arange(first, seen, device=q.device) > own[:, None]
            found[..., first:].masked_fill_(later, -torch.inf)
        return found


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor in single precision, or in double if it is."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _spans(count: int, step: int, unit: int = 1) -> Iterator[tuple[int, int]]:
    """Cut a range into parts of about ``step``, in whole units, of one unit at least."""
    step = max(unit, step // unit * unit)
    for first in range(0, count, step):
        yield first, min(count, first + step)
