"""How queries, keys and values move together (theorem ellipsoid-attention)."""

from __future__ import annotations

from functools import cached_property
from itertools import combinations_with_replacement

import torch

from taut.networks.ellipsoids.ellipsoid import reach, series, summed, widened


class MovedAttention:
    """Queries, keys and values of all heads that move together, and what this is on the outputs.

    A move z changes the centred scores by u·z, the outputs by x·z and values beside the outputs by
    w·z, w = v − x, all to first order.

    Parameters
    ----------
    p
        Weights, (heads, queries, keys).
    places
        Where queries, keys and values are, (heads, tokens, width) each.
    steps
        How they move, z ↦ X·z with |z|₂ ≤ 1, (heads, tokens, width, size of z) each.
    scale
        Of the scores.
    seen
        Which keys each query sees, (heads, queries, keys).
    """

    def __init__(
        self,
        p: torch.Tensor,
        places: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        steps: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        scale: float,
        seen: torch.Tensor,
    ) -> None:
        self.queries, self.at_keys, values = self.places = places
        self.p, self.scale, self.seen = p, scale, seen
        self.on_q, self.on_k, self.on_v = self.steps = steps
        self.heads, self.many, self.keys = p.shape
        self.width, self.size = values.shape[-1], self.on_v.shape[-1]
        self.spread_of = p[..., None] * (values[:, None] - (p @ values)[:, :, None])  # p(v − o)
        self.u = self._scores(self.on_q, self.on_k)
        self.x = self._outputs(self.on_v, self.u)
        self.terms = self.size + self.keys * self.width + 64
        self.mixture: tuple[tuple[MovedAttention, float], ...] = ()

    def halved(self, other: MovedAttention) -> MovedAttention:
        """The moves of this one and half of those of another, as one."""
        parts = self.steps, tuple(each / 2 for each in other.steps)
        sizes = [sum(float(x.square().sum()) for x in each) ** 0.5 for each in parts]
        times = [(sum(sizes) / size) ** 0.5 * (1 + 1e-12) if size > 0 else 0.0 for size in sizes]
        q, k, v = (
            torch.cat((one * times[0], two * times[1]), dim=-1)
            for one, two in zip(*parts, strict=True)
        )
        found = MovedAttention(self.p, self.places, (q, k, v), self.scale, self.seen)
        found.mixture = (self, times[0] ** 2), (other, times[1] ** 2 / 4)
        return found

    def _mixed(self, name: str) -> tuple[torch.Tensor, ...]:
        """Inner products of steps that are those of two others, each times a number."""
        (one, s), (other, t) = ((getattr(each, name), times) for each, times in self.mixture)
        return tuple(s * x + t * y for x, y in zip(one, other, strict=True))

    def _scores(self, on_q: torch.Tensor, on_k: torch.Tensor) -> torch.Tensor:
        """Linear change of the centred scores, (heads, queries, keys, size)."""
        found = torch.einsum("hie,hjez->hijz", self.queries, on_k)
        found = (found + torch.einsum("hiez,hje->hijz", on_q, self.at_keys)) * self.scale
        found = found - torch.einsum("hij,hijz->hiz", self.p, found)[:, :, None]
        return torch.where(self.seen[..., None], found, 0.0)

    def linear(self, on_q: torch.Tensor, on_k: torch.Tensor, on_v: torch.Tensor) -> torch.Tensor:
        """Linear change of the outputs for any steps, (heads, queries, width, size)."""
        return self._outputs(on_v, self._scores(on_q, on_k))

    def _outputs(self, on_v: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Those of steps of values and changes of scores."""
        moved = torch.einsum("hij,hjdz->hidz", self.p, on_v)
        return moved + torch.einsum("hijd,hijz->hidz", self.spread_of, scores)

    @cached_property
    def plain_scores(self) -> torch.Tensor:
        """Inner products of all u, as computed."""
        if self.mixture:
            (one, s), (other, t) = self.mixture
            return s * one.plain_scores + t * other.plain_scores
        u = self.u.flatten(0, 2)
        return u @ u.mT

    @cached_property
    def scores(self) -> torch.Tensor:
        """The ellipsoid of the linear change of all scores."""
        return widened(self.plain_scores, self.size)

    def grams(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Inner products of all (heads, a, b, size) with all others, six axes."""
        found = left.flatten(0, 2) @ right.flatten(0, 2).mT
        return found.reshape(*left.shape[:-1], *right.shape[:-1])

    @cached_property
    def _value_grams(self) -> tuple[torch.Tensor, ...]:
        """Inner products of steps of values and of linear changes of outputs."""
        if self.mixture:
            return self._mixed("_value_grams")
        pairs = (self.on_v, self.on_v), (self.on_v, self.x), (self.x, self.x)
        return tuple(self.grams(*pair) for pair in pairs)

    @cached_property
    def _score_grams(self) -> tuple[torch.Tensor, ...]:
        """Inner products of u with steps of values and with linear changes of outputs."""
        if self.mixture:
            return self._mixed("_score_grams")
        return self.grams(self.u, self.on_v), self.grams(self.u, self.x)

    def beside_scores(self, a: int, c: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inner products of u of head a with δv of head c, (i, j, key x, e), and with x there.

        The second is (i, j, query y, e). Their difference is that with w of query y and key x,
        which is never formed: it has five axes.
        """
        on_v, on_x = self._score_grams
        return on_v[a, :, :, c], on_x[a, :, :, c]

    def summed_values(self, a: int, c: int, weights: torch.Tensor) -> torch.Tensor:
        """Σₓ of weights (i, j, y, x) times inner products of u of head a with w of head c."""
        on_v, on_x = self.beside_scores(a, c)
        return weights @ on_v - weights.sum(dim=-1)[..., None] * on_x

    @cached_property
    def _moved_grams(self) -> tuple[torch.Tensor, ...]:
        """Inner products of steps of queries and keys."""
        if self.mixture:
            return self._mixed("_moved_grams")
        pairs = (self.on_q, self.on_q), (self.on_k, self.on_k), (self.on_q, self.on_k)
        return tuple(self.grams(*pair) for pair in pairs)

    def products(self, other: MovedAttention) -> torch.Tensor:
        """The ellipsoid of scale·(δq·δk′ + δq′·δk), centred, for moves of this one and another."""
        qq, kk, qk = self._moved_grams
        qq_, kk_, qk_ = other._moved_grams
        found = qq.new_zeros((self.heads, self.many, self.keys) * 2)
        for a, c in combinations_with_replacement(range(self.heads), 2):
            one = torch.einsum("ieyf,jexf->ijyx", qq[a, :, :, c], kk_[a, :, :, c])
            one += torch.einsum("iexf,yfje->ijyx", qk[a, :, :, c], qk_[c, :, :, a])
            if other is self:
                one *= 2
            else:
                one += torch.einsum("ieyf,jexf->ijyx", qq_[a, :, :, c], kk[a, :, :, c])
                one += torch.einsum("iexf,yfje->ijyx", qk_[a, :, :, c], qk[c, :, :, a])
            found[a, :, :, c] = one
            found[c, :, :, a] = one.permute(2, 3, 0, 1)
        q, k, q_, k_ = (
            each.norm(dim=-1) for each in (self.on_q, self.on_k, other.on_q, other.on_k)
        )
        size = torch.einsum("hie,hje->hij", q, k_) + torch.einsum("hie,hje->hij", q_, k)
        size = (self.scale * size).flatten() ** 2
        many, terms = len(size), self.terms + other.size
        return self._centred(widened(found.reshape(many, many) * self.scale**2, terms, size))

    def _centred(self, matrix: torch.Tensor) -> torch.Tensor:
        """Scores minus their mean under the weights; keys that are not seen do not count."""
        size = self.roots(matrix)
        size = (size + (self.p * size).sum(dim=-1, keepdim=True)).square().flatten()
        seen = self.seen.flatten().to(size)
        for _ in range(2):  # rows, then columns
            found = matrix.reshape((self.heads, self.many, self.keys) * 2)
            found = found - torch.einsum("hij,hijabc->hiabc", self.p, found)[:, :, None]
            matrix = (found.reshape(len(matrix), -1) * seen[:, None]).mT
        return widened(matrix, 8 * self.keys, size * seen)

    def spread(self, matrix: torch.Tensor) -> torch.Tensor:
        """Σ p(v − o)y for y in an ellipsoid of all scores."""
        shape = (self.heads, self.many, self.keys) * 2
        found = torch.einsum("hijd,hijabc->hidabc", self.spread_of, matrix.reshape(shape))
        found = torch.einsum("abce,hidabc->hidabe", self.spread_of, found)
        size = torch.einsum("hijd,hij->hid", self.spread_of.abs(), self.roots(matrix))
        return self.flat(found, size.square())

    def roots(self, matrix: torch.Tensor) -> torch.Tensor:
        """How far each score is in an ellipsoid of all."""
        return reach(matrix).reshape(self.heads, self.many, self.keys)

    def flat(self, found: torch.Tensor, size: torch.Tensor, terms: int = 0) -> torch.Tensor:
        """A matrix of all outputs, widened."""
        many = self.heads * self.many * self.width
        return widened(found.reshape(many, many), self.terms + terms, size.flatten())

    def share(self, beyond: torch.Tensor) -> torch.Tensor:
        """The ellipsoid of ζ/(1 + ζ), (heads·queries)², for ζ = Σp(e^c − 1 − c) ≥ 0."""
        shape = (self.heads, self.many, self.keys) * 2
        found = torch.einsum("hij,hijabc->hiabc", self.p, beyond.reshape(shape))
        found = torch.einsum("abc,hiabc->hiab", self.p, found)
        many = self.heads * self.many
        size = (self.p * self.roots(beyond)).sum(dim=-1).flatten()
        matrix = widened(found.reshape(many, many), self.terms, size.square())
        far = torch.minimum(reach(matrix), size * (1 + 1e-9))
        one = torch.ones_like(far)
        rests = [far**k for k in range(3, 9)]
        return summed(*series(matrix, [one, -one, one, -one, one, -one, one], rests, 1))

    def wide(self) -> torch.Tensor:
        """Lengths of all w, (heads, queries, keys, width)."""
        found: torch.Tensor = self.on_v.norm(dim=-1)[:, None] + self.x.norm(dim=-1)[:, :, None]
        return found

    def beside(self, matrix: torch.Tensor) -> torch.Tensor:
        """Σ p·y·w for y in an ellipsoid of all scores and w = δv − x."""
        vv, vx, xx = self._value_grams
        flat = self.p.flatten()
        weighed = (flat[:, None] * matrix * flat).reshape((self.heads, self.many, self.keys) * 2)
        found = vv.new_zeros((self.heads, self.many, self.width) * 2)
        for a, c in combinations_with_replacement(range(self.heads), 2):
            y = weighed[a, :, :, c]  # (queries, keys, queries, keys)
            each = torch.einsum("ijyx,jdxe->idye", y, vv[a, :, :, c])
            each -= torch.einsum("ijy,jdye->idye", y.sum(dim=3), vx[a, :, :, c])
            each -= torch.einsum("iyx,xeid->idye", y.sum(dim=1), vx[c, :, :, a])
            each += y.sum(dim=(1, 3))[:, None, :, None] * xx[a, :, :, c]
            found[a, :, :, c] = each
            found[c, :, :, a] = each.permute(2, 3, 0, 1)
        size = torch.einsum("hij,hijd->hid", self.p * self.roots(matrix), self.wide())
        return self.flat(found, 4 * size.square())


def swapped(
    left: MovedAttention, right: MovedAttention, h: int, g: int, weights: torch.Tensor
) -> torch.Tensor:
    """Σ over j, x of weights (i, j, y, x) times (u·w′)(u′·w), (i, d, y, e).

    u and w are of query i and key j in head h, u′ and w′ of query y and key x in head g. With
    w = δv − x it is a sum of four.
    """
    v, o = left.beside_scores(h, g)  # (i, j, x, e) and (i, j, y, e)
    v_, o_ = right.beside_scores(g, h)  # (y, x, j, d) and (y, x, i, d)
    found = torch.einsum("yijxe,yxjd->idye", weights.permute(2, 0, 1, 3)[..., None] * v, v_)
    found -= torch.einsum("iyjd,ijye->idye", torch.einsum("ijyx,yxjd->iyjd", weights, v_), o)
    rest = torch.einsum("ijyx,ijxe->iyxe", weights, v)
    rest -= torch.einsum("ijyx,ijye->iyxe", weights, o)
    return found - torch.einsum("iyxe,yxid->idye", rest, o_)
