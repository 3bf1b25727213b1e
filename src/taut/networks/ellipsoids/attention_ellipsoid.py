"""Attention beyond its derivative (theorem ellipsoid-attention)."""

from __future__ import annotations

import math
from functools import cached_property

import torch

from taut.networks.ellipsoids.ellipsoid import box, reach, series, summed, widened
from taut.networks.propagation.node import UnboundedError

ORDERS = 24  # of the exponential series, at most
FARTHEST = 6.0  # centred scores that move more are not followed


class MovedAttention:
    """How queries, keys and values of all heads move together, and what attention makes of it.

    With centred scores c = u·z + σ, where σ is the product of moved queries and keys, the linear
    change x of an output, w = δv − x and ζ = Σp(e^c − 1 − c), the output moves by
    x + [Σ p(v − o)(σ + e^c − 1 − c) + Σ p(e^c − 1)w]/(1 + ζ). The terms of second order in z are
    one quadratic form.

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
    doubt
        Further errors of the centred scores of each query, (queries,).
    """

    def __init__(
        self,
        p: torch.Tensor,
        places: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        steps: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
        scale: float,
        seen: torch.Tensor,
        doubt: torch.Tensor,
    ) -> None:
        self.queries, self.at_keys, values = places
        self.p, self.scale, self.seen = p, scale, seen
        self.on_q, self.on_k, self.on_v = steps
        self.heads, self.many, self.keys = p.shape
        self.width, self.size = values.shape[-1], self.on_v.shape[-1]
        self.spread = p[..., None] * (values[:, None] - (p @ values)[:, :, None])  # p(v − o)
        self.u = self._scores(self.on_q, self.on_k)
        self.x = self.linear(*steps)
        self.terms = self.size + self.keys * self.width + 64
        self.doubt = torch.where(seen, doubt[None, :, None], 0.0).flatten()

    def _scores(self, on_q: torch.Tensor, on_k: torch.Tensor) -> torch.Tensor:
        """Linear change of the centred scores, (heads, queries, keys, size)."""
        found = torch.einsum("hie,hjez->hijz", self.queries, on_k)
        found = (found + torch.einsum("hiez,hje->hijz", on_q, self.at_keys)) * self.scale
        found = found - torch.einsum("hij,hijz->hiz", self.p, found)[:, :, None]
        return torch.where(self.seen[..., None], found, 0.0)

    def linear(self, on_q: torch.Tensor, on_k: torch.Tensor, on_v: torch.Tensor) -> torch.Tensor:
        """Linear change of the outputs for any steps, (heads, queries, width, size)."""
        moved = torch.einsum("hij,hjdz->hidz", self.p, on_v)
        return moved + torch.einsum("hijd,hijz->hidz", self.spread, self._scores(on_q, on_k))

    def error(self) -> tuple[torch.Tensor, float]:
        """The ellipsoid of all outputs minus their linear change, (queries·heads·width)².

        Also how far a centred score can move.
        """
        flat = self.p.flatten()
        u = self.u.flatten(0, 2)
        linear = widened(u @ u.mT, self.size)
        product = summed(self._centred(self._products()), box(self.doubt))
        scores = summed(linear, product)
        far = reach(scores)
        if not bool((far < FARTHEST).all()):
            raise UnboundedError
        orders = range(2, ORDERS + 1)
        powers = [torch.full_like(flat, 1 / math.factorial(k)) for k in orders]
        rests = [far ** (k + 1) * (1 / math.factorial(k + 1)) * torch.exp(far) for k in orders[1:]]
        squares, third = series(scores, powers, rests, 2)
        beyond = summed(squares, third)  # e^c − 1 − c
        share = self._share(beyond)
        second = self._second(u, linear)
        mixed = summed(linear * product, product * product / 4)
        error = summed(
            self._spread(product),
            second,
            self._spread(summed(mixed, third)),
            self._beside_values(summed(product, beyond)),
        )
        shape = (self.heads, self.many, self.width) * 2
        error = error.reshape(shape)
        scaled = error * share.reshape(self.heads, self.many, 1, self.heads, self.many, 1)
        parts = (each.permute(1, 0, 2, 4, 3, 5).reshape(second.shape) for each in (error, scaled))
        return summed(*parts), float(far.max())

    def _grams(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Inner products of all (heads, a, b, size) with all others, six axes."""
        found = left.flatten(0, 2) @ right.flatten(0, 2).mT
        return found.reshape(*left.shape[:-1], *right.shape[:-1])

    @cached_property
    def _value_grams(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Inner products of steps of values and of linear changes of outputs."""
        pairs = (self.on_v, self.on_v), (self.on_v, self.x), (self.x, self.x)
        first, second, third = (self._grams(*pair) for pair in pairs)
        return first, second, third

    def _products(self) -> torch.Tensor:
        """Inner products of the forms scale·δq·δk, (scores)²."""
        qq, kk = self._grams(self.on_q, self.on_q), self._grams(self.on_k, self.on_k)
        qk = self._grams(self.on_q, self.on_k)
        found = qq.new_zeros((self.heads, self.many, self.keys) * 2)
        for a in range(self.heads):
            for c in range(self.heads):
                plain = torch.einsum("ieyf,jexf->ijyx", qq[a, :, :, c], kk[a, :, :, c])
                crossed = torch.einsum("iexf,yfje->ijyx", qk[a, :, :, c], qk[c, :, :, a])
                found[a, :, :, c] = plain + crossed
        q, k = self.on_q.norm(dim=-1), self.on_k.norm(dim=-1)
        size = (self.scale * torch.einsum("hie,hje->hij", q, k)).flatten() ** 2
        many = len(size)
        return widened(found.reshape(many, many) * (self.scale**2 / 2), self.terms, size)

    def _centred(self, matrix: torch.Tensor) -> torch.Tensor:
        """Scores minus their mean under the weights; keys that are not seen do not count."""
        size = self._roots(matrix)
        size = (size + (self.p * size).sum(dim=-1, keepdim=True)).square().flatten()
        seen = self.seen.flatten().to(size)
        for _ in range(2):  # rows, then columns
            found = matrix.reshape((self.heads, self.many, self.keys) * 2)
            found = found - torch.einsum("hij,hijabc->hiabc", self.p, found)[:, :, None]
            matrix = (found.reshape(len(matrix), -1) * seen[:, None]).mT
        return widened(matrix, 8 * self.keys, size * seen)

    def _spread(self, matrix: torch.Tensor) -> torch.Tensor:
        """Σ p(v − o)y for y in an ellipsoid of all scores."""
        shape = (self.heads, self.many, self.keys) * 2
        found = torch.einsum("hijd,hijabc->hidabc", self.spread, matrix.reshape(shape))
        found = torch.einsum("abce,hidabc->hidabe", self.spread, found)
        size = torch.einsum("hijd,hij->hid", self.spread.abs(), self._roots(matrix))
        return self._flat(found, size.square())

    def _roots(self, matrix: torch.Tensor) -> torch.Tensor:
        return reach(matrix).reshape(self.heads, self.many, self.keys)

    def _flat(self, found: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        """A matrix of all outputs, widened."""
        many = self.heads * self.many * self.width
        return widened(found.reshape(many, many), self.terms, size.flatten())

    def _share(self, beyond: torch.Tensor) -> torch.Tensor:
        """The ellipsoid of ζ/(1 + ζ), (heads·queries)², for ζ = Σp(e^c − 1 − c) ≥ 0."""
        shape = (self.heads, self.many, self.keys) * 2
        found = torch.einsum("hij,hijabc->hiabc", self.p, beyond.reshape(shape))
        found = torch.einsum("abc,hiabc->hiab", self.p, found)
        many = self.heads * self.many
        size = (self.p * self._roots(beyond)).sum(dim=-1).flatten()
        matrix = widened(found.reshape(many, many), self.terms, size.square())
        far = torch.minimum(reach(matrix), size * (1 + 1e-9))
        one = torch.ones_like(far)
        rests = [far**k for k in range(3, 9)]
        return summed(*series(matrix, [one, -one, one, -one, one, -one, one], rests, 1))

    def _second(self, u: torch.Tensor, linear: torch.Tensor) -> torch.Tensor:
        """Inner products of the forms Σ p(v − o)(u·z)²/2 + Σ p(u·z)(w·z) of all outputs."""
        plain = self._spread(linear * linear / 4)
        beside = self._beside_values(linear)
        uu = linear.reshape((self.heads, self.many, self.keys) * 2)
        uv, ux = self._grams(self.u, self.on_v), self._grams(self.u, self.x)
        found = u.new_zeros((self.heads, self.many, self.width) * 2)
        for a in range(self.heads):
            for c in range(self.heads):
                # u of each score with w of each other one and coordinate
                uw = uv[a, :, :, c][:, :, None] - ux[a, :, :, c][:, :, :, None]
                wu = uv[c, :, :, a][:, :, None] - ux[c, :, :, a][:, :, :, None]
                both = uu[a, :, :, c] * self.p[c]
                one = torch.einsum("ijyx,ijyxe->ijye", both, uw)
                cross = torch.einsum("ijd,ijye->idye", self.spread[a], one)
                weighed = uw * self.p[a][:, :, None, None, None] * self.p[c][:, :, None]
                swapped = torch.einsum("ijyxe,yxijd->idye", weighed, wu)
                found[a, :, :, c] += (cross + swapped) / 2
                found[c, :, :, a] += cross.permute(2, 3, 0, 1) / 2
        far, wide = self._roots(linear), self._wide()
        size = torch.einsum("hijd,hij->hid", self.spread.abs(), far**2)
        size = size + torch.einsum("hij,hijd->hid", self.p * far, wide)
        return plain + self._flat(found, 4 * size.square()) + beside / 2

    def _wide(self) -> torch.Tensor:
        """Lengths of all w, (heads, queries, keys, width)."""
        found: torch.Tensor = self.on_v.norm(dim=-1)[:, None] + self.x.norm(dim=-1)[:, :, None]
        return found

    def _beside_values(self, matrix: torch.Tensor) -> torch.Tensor:
        """Σ p·y·w for y in an ellipsoid of all scores and w = δv − x."""
        vv, vx, xx = self._value_grams
        flat = self.p.flatten()
        weighed = (flat[:, None] * matrix * flat).reshape((self.heads, self.many, self.keys) * 2)
        found = vv.new_zeros((self.heads, self.many, self.width) * 2)
        for a in range(self.heads):
            for c in range(self.heads):
                y = weighed[a, :, :, c]  # (queries, keys, queries, keys)
                each = torch.einsum("ijyx,jdxe->idye", y, vv[a, :, :, c])
                each -= torch.einsum("ijy,jdye->idye", y.sum(dim=3), vx[a, :, :, c])
                each -= torch.einsum("iyx,xeid->idye", y.sum(dim=1), vx[c, :, :, a])
                each += y.sum(dim=(1, 3))[:, None, :, None] * xx[a, :, :, c]
                found[a, :, :, c] = each
        size = torch.einsum("hij,hijd->hid", self.p * self._roots(matrix), self._wide())
        return self._flat(found, 4 * size.square())
