"""Bring scores from the layout that a model uses to (samples, heads, queries, keys)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from taut.models._tracking.index_arrays import least, narrowed, one_along, ranks, varies
from taut.models._tracking.model_inputs import STRANGERS, ModelInputs
from taut.models._tracking.origin import NOT_A_TOKEN, TOKENS, Origin
from taut.models.captured import Captured
from taut.models.masks import HIDDEN
from taut.models.score_blocks import FusedScores, WrittenScores

Array = np.ndarray[Any, np.dtype[Any]]


class AttentionRows(NamedTuple):
    """The rows of an attention by sample, head and query; their scores are read in blocks.

    If a model cuts its input into blocks, the queries of all blocks of a sample follow each other.
    """

    reader: WrittenScores | FusedScores
    shape: tuple[int, int, int]  # samples, heads, queries
    samples: Array  # the index of each sample in its batch; -1 if it is not known
    queries: Array  # the position of each query in its sequence, (samples, heads, queries)
    real: torch.Tensor | None = None  # False for queries that are padding, like ``queries``
    source: str = ""  # the argument of the model that the queries are tokens of, if any
    heads: torch.Tensor | None = None  # the head of every row in the model's own layout
    order: Array | None = None  # rows of the model's layout as they are arranged; None for the same
    tokens: torch.Tensor | None = None  # of the queries, as origins number them, like ``queries``
    keys: torch.Tensor | None = None  # tokens of the keys, in the model's layout, keys last
    key_source: str = ""  # the argument of the model that the keys are tokens of, if any

    def arranged(self, numbers: Array) -> Array:
        """One number for each row of the model's layout, as (samples, heads, queries)."""
        flat = numbers.reshape(-1)
        return (flat if self.order is None else flat[self.order]).reshape(self.shape)

    def in_model(self, numbers: Array) -> Array:
        """The inverse of :meth:`arranged`, in the shape of the reader's rows."""
        flat = numbers.reshape(-1)
        if self.order is not None:
            back = np.empty_like(flat)
            back[self.order] = flat
            flat = back
        return flat.reshape(self.reader.shape)

    def row(self, sample: int, head: int, query: int) -> torch.Tensor:
        """Scores of one row."""
        return self.reader.row(self._in_model(sample, head, query))

    def place(self, sample: int, head: int, query: int) -> int:
        """The position of the query of one row in the input; -1 if it is not a token of it."""
        token = -1 if self.tokens is None else int(self.tokens[sample, head, query])
        return token % TOKENS if token > NOT_A_TOKEN else -1

    def key_places(self, sample: int, head: int, query: int) -> Array:
        """The positions of the keys of one row in the input; -1 for those that are not in it."""
        if self.keys is None:
            return np.full(self.reader.keys, -1)
        row = np.unravel_index(self._in_model(sample, head, query), self.keys.shape[:-1])
        tokens = self.keys[tuple(int(i) for i in row)].cpu().numpy()
        return np.where(tokens > NOT_A_TOKEN, tokens % TOKENS, -1)

    def places_of(self, chosen: Array) -> Array:
        """The position in the input of one key of every row; -1 for those that are not in it.

        ``chosen`` are numbers of keys, and the result is, (samples, heads, queries).
        """
        if self.keys is None:
            return np.full(self.shape, -1)
        shape = self.keys.shape[:-1]
        index = torch.from_numpy(self.in_model(chosen).reshape(shape)).to(self.keys.device)
        tokens = self.keys.gather(-1, index[..., None])[..., 0].cpu().numpy()
        return self.arranged(np.where(tokens > NOT_A_TOKEN, tokens % TOKENS, -1))

    def _in_model(self, sample: int, head: int, query: int) -> int:
        """The number of a row in the model's layout."""
        place = int(np.ravel_multi_index((sample, head, query), self.shape))
        return place if self.order is None else int(self.order[place])

    @property
    def scores(self) -> torch.Tensor:
        """All scores, (samples, heads, queries, keys): for small models."""
        flat = self.reader.whole.reshape(-1, self.reader.keys)
        if self.order is not None:
            flat = flat[torch.from_numpy(self.order).to(flat.device)]
        return flat.reshape(*self.shape, -1)

    @property
    def weights(self) -> torch.Tensor:
        """Softmax of all scores."""
        return self.scores.softmax(dim=-1)


def attention_rows(seen: Captured, inputs: ModelInputs, heads: int | None) -> AttentionRows:
    """Arrange captured scores and weights; raise a ValueError if their layout is not known.

    Heads are features that were split off before the product of queries and keys. ``heads``, the
    number that the module states, decides where rows are features themselves.
    """
    return _by_origin(seen, inputs, heads) or _by_shape(seen, inputs.samples, heads)


def _by_origin(seen: Captured, inputs: ModelInputs, heads: int | None) -> AttentionRows | None:
    """Arrange rows by their origins, if these are known."""
    if not seen.reader.keys or not all(seen.reader.shape):
        raise ValueError(f"scores of shape {_shape(seen)} hold nothing")
    if seen.origin is None:
        return None
    origin = _visible(seen, seen.origin)
    sample, token = (one_along(part, -1) for part in (origin.sample, origin.token))
    keys = origin.other
    if origin.other is not None and varies(origin.token, -1):
        token, keys = one_along(origin.other, -1), origin.token  # keys were the left factor
    head = _heads(sample, least(origin.feature, -1), origin.other is not None, heads)
    head = _several(sample, head, token, heads)
    group = (ranks(sample) * (int(head.max()) + 1) + head).flatten()
    counts = torch.bincount(group)
    if bool((sample < 0).any()) or len(set(counts.tolist())) > 1:
        return None
    shape = (len(counts) // (int(head.max()) + 1), int(head.max()) + 1, int(counts[0]))
    order = torch.argsort(group, stable=True)
    still = bool((order == torch.arange(len(order), device=order.device)).all())

    def put(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor if still else tensor.flatten()[order]).reshape(shape)

    lined, tokens = put(sample), put(token)
    names = lined[:, 0, 0].cpu().numpy()
    source = inputs.name(int(tokens.min()))
    if source != inputs.name(int(tokens.max())):
        source = ""
    return AttentionRows(
        seen.reader, shape, np.where(names < STRANGERS, names, -1), _places(tokens),
        inputs.real(lined, tokens), source, head, None if still else order.cpu().numpy(),
        tokens, keys, _source_of(keys, inputs),
    )  # fmt: skip


def _source_of(tokens: torch.Tensor | None, inputs: ModelInputs) -> str:
    """The argument that all tokens belong to, as far as they belong to any; else nothing."""
    if tokens is None:
        return ""
    known = narrowed(tokens)
    known = known[known > NOT_A_TOKEN]
    if not known.numel():
        return ""
    first, last = inputs.name(int(known.min())), inputs.name(int(known.max()))
    return first if first == last else ""


def _visible(seen: Captured, origin: Origin) -> Origin:
    """The origin without masked entries, which may come from anywhere.

    In fused attention queries and keys are apart, so that nothing else is among them.
    """
    if seen.fused:
        return origin
    if not varies(origin.token, -1) and not bool((one_along(origin.sample, -1) < 0).any()):
        return origin
    hidden = (seen.scores < HIDDEN) | (origin.sample < 0)
    feature = torch.where(hidden, torch.iinfo(torch.int64).max, origin.feature)
    clean = origin.moved(lambda part: torch.where(hidden, NOT_A_TOKEN, part))
    return clean._replace(feature=feature)


def _heads(
    sample: torch.Tensor, feature: torch.Tensor, product: bool, known: int | None
) -> torch.Tensor:
    """The number of the head of every row: the rank of its features within its sample."""
    shape = sample.shape
    for dim in range(sample.ndim):  # whatever is only repeated is computed once
        if sample.stride(dim) == 0 and feature.stride(dim) == 0 and shape[dim] > 1:
            sample, feature = sample.narrow(dim, 0, 1), feature.narrow(dim, 0, 1)
    found, place = torch.unique(_joined(sample, feature), return_inverse=True)
    count = max(1, len(found) // max(1, len(torch.unique(sample))))
    rank: torch.Tensor = place.reshape(feature.shape) % count
    if not product and known and count > known and count % known == 0:
        rank = rank // (count // known)  # rows are features themselves, so many for each head
    return rank.expand(shape)


def _several(
    sample: torch.Tensor, head: torch.Tensor, token: torch.Tensor, known: int | None
) -> torch.Tensor:
    """Heads that share features, as those of several experts do: a query comes once for each."""
    count = int(head.max()) + 1 if head.numel() else 1
    if known is None or known <= count or known % count:
        return head
    if bool((token < 0).any()):
        return _of_learned_queries(sample, head, token, known)
    times = known // count
    places = _joined(_joined(sample, head), token)
    _, place, often = torch.unique(places, return_inverse=True, return_counts=True)
    if bool((often != times).any()):
        return head
    order = torch.argsort(place.flatten(), stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order), device=order.device) % times
    return rank.reshape(head.shape) * count + head


def _of_learned_queries(
    sample: torch.Tensor, head: torch.Tensor, token: torch.Tensor, known: int
) -> torch.Tensor:
    """Heads that share keys where all queries are learned: by the axis that has as many, if any."""
    alike = head.ndim == 3 and head.shape[1] == known and not varies(head, 2)
    if not alike or bool((token >= 0).any()) or varies(sample, 1):
        return head
    return torch.arange(known, device=head.device)[:, None].expand(head.shape)


def _joined(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """One number for each pair of numbers, in their order."""
    number = ranks(second)
    return ranks(first) * (int(number.max()) + 1 if number.numel() else 1) + number


def _places(tokens: torch.Tensor) -> Array:
    """The position of each query in its sequence; its index in the row order if not known."""
    known = bool((tokens > NOT_A_TOKEN).all())
    if known and bool((tokens.sort(dim=-1).values.diff(dim=-1) > 0).all()):
        return (tokens % TOKENS).cpu().numpy()
    return np.broadcast_to(np.arange(tokens.shape[2]), tuple(tokens.shape))


def _by_shape(seen: Captured, samples: int, heads: int | None) -> AttentionRows:
    """Without origins: accept the one layout that cannot be mistaken."""
    shape = _shape(seen)
    if heads is None or len(shape) != 4 or shape[:2] != (samples, heads) or shape[2] == heads:
        raise ValueError(f"scores of shape {shape} have no known layout")
    places = np.broadcast_to(np.arange(shape[2]), shape[:3])
    return AttentionRows(seen.reader, shape[:3], np.arange(samples), places)


def _shape(seen: Captured) -> tuple[int, ...]:
    """The shape of the scores in the model's layout."""
    return (*seen.reader.shape, seen.reader.keys) if seen.fused else tuple(seen.scores.shape)
