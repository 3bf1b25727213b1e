"""Activations that are written out in several operations, such as GELU by erf.

A value is kept as a polynomial in x and in erf, tanh and sigmoid of such polynomials, until it is
one of the known activations.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from taut.networks.onnx_files.symbols import PlacedEntries
from taut.networks.operations.activation_slopes import FAST_GELU, GELU, SILU, Activation

Terms = dict[tuple[Any, ...], float]  # coefficient of each product of factors; () is constant
CLOSE = 1e-6  # how far the constants of GELU's tanh form may be from their digits, relative
ERF = Activation(torch.erf, 0.0, 1.1283791670955128, bend=0.9679, accurate=True)  # 2/√π; at ±1/√2
PLAIN = {"tanh": nn.Tanh(), "sigmoid": nn.Sigmoid(), "erf": ERF}


@dataclass(frozen=True)
class Polynomial:
    """A function of every entry of x by itself."""

    of: PlacedEntries  # without a factor
    terms: tuple[tuple[tuple[Any, ...], float], ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the value."""
        return self.of.shape

    def plus(self, other: Polynomial | float) -> Polynomial:
        """The sum with another function of the same entries, or with a number."""
        found = dict(self.terms)
        for factors, value in _terms(other).items():
            found[factors] = found.get(factors, 0.0) + value
        return _polynomial(self.of, found)

    def times(self, other: Polynomial | float) -> Polynomial:
        """The product with another function of the same entries, or with a number."""
        found: Terms = {}
        for left, one in self.terms:
            for right, two in _terms(other).items():
                factors = tuple(sorted((*left, *right), key=repr))
                found[factors] = found.get(factors, 0.0) + one * two
        return _polynomial(self.of, found)

    def inside(self, function: str) -> Polynomial:
        """erf, tanh or sigmoid of it."""
        return _polynomial(self.of, {((function, self.terms),): 1.0})

    @property
    def is_square(self) -> bool:
        """Whether it is x²."""
        return self.terms == ((("x", "x"), 1.0),)

    def activation(self) -> tuple[Any, float] | None:
        """The known activation that it is, and a factor that x is multiplied by before it."""
        terms = dict(self.terms)
        if len(terms) == 1:
            ((factors, value),) = terms.items()
            inner = _inner(factors, 1)
            if value == 1 and inner is not None:
                function, argument = inner
                if set(argument) == {("x",)}:
                    return PLAIN[function], argument["x",]
            inner = _inner(factors, 2)
            if value == 1 and inner is not None and inner[0] == "sigmoid":
                return _silu(inner[1])
        if len(terms) == 2 and terms.get(("x",)) == 0.5:
            factors, value = next(each for each in terms.items() if each[0] != ("x",))
            inner = _inner(factors, 2)
            if value == 0.5 and inner is not None:
                return _gelu(*inner)
        return None


def polynomial(x: PlacedEntries) -> Polynomial:
    """X itself."""
    plain = PlacedEntries(x.tokens, x.places)
    return _polynomial(plain, {("x",): x.factor})


def _polynomial(of: PlacedEntries, terms: Terms) -> Polynomial:
    kept = [(factors, value) for factors, value in terms.items() if value != 0]
    return Polynomial(of, tuple(sorted(kept, key=repr)))


def _terms(value: Polynomial | float) -> Terms:
    return dict(value.terms) if isinstance(value, Polynomial) else {(): value}


def _inner(factors: tuple[Any, ...], many: int) -> tuple[str, Terms] | None:
    """The function among so many factors, all others x, and its argument."""
    inside = [each for each in factors if each != "x"]
    if len(factors) != many or len(inside) != 1:
        return None
    return inside[0][0], dict(inside[0][1])


def _silu(argument: Terms) -> tuple[Any, float] | None:
    """x·sigmoid(cx) is SiLU(cx)/c: the same slopes, and c times its bend."""
    c = argument.get(("x",), 0.0)
    if set(argument) != {("x",)} or c <= 0:
        return None
    if c == 1:
        return nn.SiLU(), 1.0
    return Activation(
        lambda x: x * torch.sigmoid(c * x), *SILU, bend=0.5 * c * 1.001, accurate=True
    ), 1.0


def _gelu(function: str, argument: Terms) -> tuple[Any, float] | None:
    """x/2·(1 + erf(cx)) is GELU(√2cx)/(√2c), or the form with tanh and its usual constants."""
    c = argument.get(("x",), 0.0)
    if function == "erf" and set(argument) == {("x",)} and c > 0:
        bend = 0.798 * math.sqrt(2) * c * 1.001
        return Activation(
            lambda x: 0.5 * x * (1 + torch.erf(c * x)), *GELU, bend=bend, accurate=True
        ), 1.0
    cube = argument.get(("x", "x", "x"), 0.0)
    usual = math.sqrt(2 / math.pi)
    if function == "tanh" and set(argument) == {("x",), ("x", "x", "x")}:
        near = abs(c / usual - 1) < CLOSE and abs(cube / (usual * 0.044715) - 1) < CLOSE
        low, high = FAST_GELU[0] - 10 * CLOSE, FAST_GELU[1] + 10 * CLOSE
        if near:
            return Activation(
                lambda x: 0.5 * x * (1 + torch.tanh(c * x + cube * x * x * x)), low, high,
                bend=0.799, accurate=True,
            ), 1.0  # fmt: skip
    return None
