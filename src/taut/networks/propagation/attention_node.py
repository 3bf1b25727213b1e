"""Softmax attention of queries, keys and values (theorem affine-attention)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.attention_below import pull_below
from taut.networks.propagation.attention_scores import MovedScores, bound_scores
from taut.networks.propagation.choices import AttentionChoices
from taut.networks.propagation.node import Node, Pulled, UnboundedError
from taut.networks.propagation.rows import Rows, heads_apart
from taut.networks.propagation.softmax_remainder import Remainder, softmax_remainder
from taut.networks.propagation.softmax_rows import JointRows
from taut.networks.propagation.value_change import ValueChange
from taut.networks.propagation.value_factors import LIMIT
from taut.networks.propagation.value_reference import ValueReference

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class AttentionNode(Node):
    """softmax(cap(scale·qkᵀ) + term)·v for every head; heads stand one after another.

    Parameters
    ----------
    queries, keys, values
        The three inputs, already projected; several heads may share one key and value.
    heads, kv_heads, scale, softcap
        As in :class:`taut.networks.Heads`.
    term
        Fixed part of the scores, (heads, queries, keys), −inf where a key is not seen; or None.
    """

    kind = "attention"

    def __init__(
        self, queries: Node, keys: Node, values: Node, heads: int, kv_heads: int, scale: float,
        softcap: float | None, term: torch.Tensor | None,
    ) -> None:  # fmt: skip
        self.queries, self.keys, self.values = queries, keys, values
        self.heads, self.kv_heads, self.scale = heads, kv_heads, scale
        self.softcap, self.term = softcap, term
        self.group = heads // kv_heads
        super().__init__(queries, keys, values)
        self.p = self.weights()
        self.doubt = 0.0
        self.found: tuple[MovedScores, Remainder] | None = None
        self.joint: JointRows | None = None
        self.change: ValueChange | None = None
        self.choices: AttentionChoices | None = None  # of rows from below
        self.reference: ValueReference | None = None
        self.asked: torch.Tensor | None = None  # the first row that came last from below

    @property
    def work(self) -> float:
        """Every pair of tokens with every entry of a value."""
        return float(self.p.numel() * (self.values.width // self.kv_heads) ** 2)

    @property
    def width_of_query(self) -> int:
        """Width of a query of one head."""
        return self.queries.width // self.heads

    def split(self, x: torch.Tensor, *, queries: bool = False) -> torch.Tensor:
        """(tokens, heads·width) as (heads, tokens, width); shared heads are repeated."""
        if queries:
            return heads_apart(x, self.heads).transpose(0, 1)
        own = heads_apart(x, self.kv_heads).transpose(0, 1)
        return own.repeat_interleave(self.group, dim=0)

    def weights(self) -> torch.Tensor:
        """Weights at the centres, (heads, queries, keys)."""
        q, k = self.split(self.queries.centre, queries=True), self.split(self.keys.centre)
        scores = self.scale * q @ k.mT
        if self.softcap is not None:
            scores = self.softcap * torch.tanh(scores / self.softcap)
        return torch.softmax(scores if self.term is None else scores + self.term, dim=-1)

    @property
    def seen(self) -> torch.Tensor:
        """Where a query sees a key, however small its weight is, (heads, queries, keys)."""
        if self.term is None:
            return torch.ones_like(self.p, dtype=torch.bool)
        return self.term > -torch.inf

    def value(self) -> torch.Tensor:
        """The mean of the values under the weights."""
        return (self.weights() @ self.split(self.values.centre)).transpose(0, 1).flatten(1)

    def needs(self) -> tuple[torch.Tensor, ...]:
        """Queries as needed, and the keys and values that these see."""
        seen = torch.ones(self.queries.tokens, self.keys.tokens, dtype=torch.bool)
        if self.term is not None:
            seen = (self.term > -torch.inf).any(dim=0).cpu()
        keys = seen[self.needed].any(dim=0)
        return self.needed, keys, keys

    def prepare(self, engine: Engine) -> None:
        """Radii of queries, keys, values and centred scores, then the remainder of softmax."""
        engine.box(self.queries, factors=True)
        engine.box(self.keys, factors=True)
        engine.box(self.values, factors=True)
        self.centre, self.p = self.value(), self.weights()
        self.doubt = self.weight_doubt()
        if self.doubt > 1e-3:
            raise UnboundedError  # scores so large that float64 does not resolve them
        scores = bound_scores(engine, self, self.p)
        gap = None
        if scores.linear is not None:
            self.joint = JointRows(
                self.p, scores.linear, scores.rest, scores.centred, engine.inputs
            )
            gap = self.joint.gap
        found = softmax_remainder(self.p, scores.centred, gap, self.doubt)
        seen = self.seen
        low, high, change = (torch.where(seen, each, 0.0) for each in found[:3])
        remainder = Remainder(low, high, change, found.gap)
        self.found = (scores, remainder)
        length = None if self.joint is None else self.joint.change(remainder.gap)
        factors = engine.factors(self.values, self.kv_heads)
        limit = LIMIT / 10 if engine.quick else LIMIT
        self.change = ValueChange(factors, remainder.change, length, self.group, limit)
        self._sizes(engine, remainder)

    def weight_doubt(self) -> float:
        """Relative error of the weights: twice that of a score, and of the sum of exponentials."""
        q, k = (float(x.centre.norm(dim=-1).max()) for x in (self.queries, self.keys))
        units = (2 * self.width_of_query + 16) * self.scale * q * k
        return 4 * EPS * (units + 4 * self._largest_term() + self.keys.tokens + 16)

    def _largest_term(self) -> float:
        if self.term is None:
            return 0.0
        return float(torch.where(self.term.isfinite(), self.term.abs(), 0.0).max())

    def _sizes(self, engine: Engine, remainder: Remainder) -> None:
        """How far outputs move, and their rounding."""
        v = self.split(self.values.centre)
        radius = self.split(self.values.box) if self.values.box is not None else v * 0
        moved = (v.abs() + radius).norm(dim=-1) * (1 + 1e-9)
        spread = torch.einsum("hij,hj->hi", remainder.change, moved) + torch.einsum(
            "hij,hj->hi", self.p, radius.norm(dim=-1)
        )
        longest = moved.amax(dim=-1, keepdim=True).expand(spread.shape)
        far = torch.minimum(spread, 2 * longest).norm(dim=0) * (1 + 1e-9)
        self.local = self.rounding(engine.unit, longest)
        self.sizes = far + self.local

    def rounding(self, unit: float, longest: torch.Tensor | float | None = None) -> torch.Tensor:
        """How much rounding adds to each token.

        An error of e in every score moves the logarithm of a weight by 2e, and summing up m
        exponentials by γ_(m+8): the mean value moves by (e^θ − 1) times the longest value, which
        may be given for each head and query. Averaging errs by γ_(m+2) of it.
        """
        longest = float(self.values.longest.max()) if longest is None else longest
        q = self.split(self.queries.centre, queries=True).norm(dim=-1) + self.queries.sizes
        k = self.split(self.keys.centre).norm(dim=-1) + self.keys.sizes
        units = (2 * self.width_of_query + 16) * self.scale * q * k.amax(dim=-1, keepdim=True)
        doubt = unit * (2 * units + 8 * self._largest_term() + self.keys.tokens + 8)
        changed = torch.expm1(doubt.clamp(max=700.0)).clamp(max=2.0)
        mean = unit * (4 * self.keys.tokens + 16)
        found: torch.Tensor = ((changed + mean) * longest).norm(dim=0) * (1 + 1e-9)
        return found

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The derivative at the centres; the softmax, score and value errors after contraction."""
        if lower:
            one = Rows(rows.values[:1].detach(), None if rows.token is None else rows.token[:1])
            self.asked = heads_apart(one.dense(self.tokens)[0], self.heads).transpose(0, 1)
        if lower and self.choices is not None:
            return pull_below(self, rows, self.choices)
        assert self.found is not None
        assert self.change is not None
        scores, remainder = self.found
        a = heads_apart(rows.values, self.heads).transpose(1, 2)  # rows, heads, queries, d
        p, slope, bilinear, low, high = (
            self._pick(each, rows)
            for each in (self.p, scores.slope, scores.bilinear, remainder.low, remainder.high)
        )
        v, k = self.split(self.values.centre), self.split(self.keys.centre)
        beta = torch.einsum("shid,hjd->shij", a, v)
        beta = beta - (p * beta).sum(dim=-1, keepdim=True)
        up, down = beta.clamp(min=0.0), beta.clamp(max=0.0)
        top = up * high - down * low
        bottom = up * low - down * high
        top, bottom = top.sum(dim=-1), bottom.sum(dim=-1)
        if self.joint is not None and self.joint.affordable(beta):
            picked = [self._pick(each, rows) for each in self.joint.data]
            top = torch.minimum(top, self.joint.side(beta, low, picked))
            bottom = torch.minimum(bottom, self.joint.side(-beta, low, picked))
        shift = ((top - bottom) / 2).flatten(1).sum(dim=1)
        error = ((top + bottom) / 2).flatten(1).sum(dim=1)
        gamma = p * beta
        error = error + (gamma.abs() * bilinear).flatten(1).sum(dim=1)
        error = error + self.change.bound(a, rows, self._pick)
        gamma = gamma * slope * self.scale
        q = self._pick(self.split(self.queries.centre, queries=True), rows)
        on_q = torch.einsum("shij,hjd->shid", gamma, k)
        on_k = torch.einsum("shij,shid->shjd", gamma, q.expand(len(rows), -1, -1, -1))
        on_v = torch.einsum("shij,shid->shjd", p.expand(len(rows), -1, -1, -1), a)
        pulled = (
            rows.but(on_q.transpose(1, 2).flatten(2)),
            Rows(self.shared(on_k)),
            Rows(self.shared(on_v)),
        )
        return Pulled(pulled, shift, error * (1 + 1e-9), self.rounding_of(rows, top + bottom))

    def _pick(self, data: torch.Tensor, rows: Rows) -> torch.Tensor:
        """(heads, queries, ...) beside the rows, (1 or rows, heads, queries or 1, ...)."""
        if rows.token is None or self.tokens == 1:
            return data[None]
        return data.transpose(0, 1)[rows.token].unsqueeze(2)

    def shared(self, x: torch.Tensor) -> torch.Tensor:
        """(rows, heads, tokens, width) as (rows, tokens, kv_heads·width), shared heads added up."""
        x = x.reshape(len(x), self.kv_heads, self.group, *x.shape[2:]).sum(dim=2)
        return x.transpose(1, 2).flatten(2)

    def rounding_of(self, rows: Rows, width: torch.Tensor) -> torch.Tensor:
        """Coefficients err by γ of their size, and weights by their doubt.

        A row of length |a| reads values of length V: centred, |β| ≤ 2|a|V errs by γ of that, which
        moves the remainder by as much, as its limits are at most 1 + a; coefficients on scores are
        at most p|β|, on values p|a|.
        """
        terms = (self.values.width + self.keys.tokens + 64) * 8 * EPS + 4 * self.doubt
        v = float(self.values.longest.max())
        k, q = float(self.keys.longest.max()), self.queries.longest
        scores = self.scale * (q * float(self.keys.sizes.max()) + k * self.queries.sizes)
        moved = float(self.values.sizes.max()) + 2 * v * (scores + self._limits())
        heads = self.heads**0.5
        found: torch.Tensor = rows.weighed(moved) * terms * heads
        return found + width.flatten(1).sum(dim=1) * 1e-12

    def _limits(self) -> torch.Tensor:
        """Σⱼ of the limits of the remainder, for every query, of the worst head."""
        assert self.found is not None
        _, remainder = self.found
        return (remainder.low + remainder.high).sum(dim=-1).amax(dim=0)
