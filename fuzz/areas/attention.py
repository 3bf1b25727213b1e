"""Bounds of attention layers, against gradient ascent over tokens and weights."""

from __future__ import annotations

import math

import numpy as np
import torch

from fuzz.area import Area
from fuzz.case import Array, Case
from taut import attention
from tests.helpers import attention_attack as attack
from tests.helpers import attention_oracle as oracle

FORMS = ("local", "ball", "token", "cosine", "l2", "affinity", "layer")
STEPS = 25
NAMES = ("x", "wq", "wk", "wv")


class Attention(Area):
    """The constant at the end of an ascent over the bound there."""

    name = "attention"
    goal = 10_000
    unit = "ascents"
    ratio = "constant found over its bound"

    def __init__(self) -> None:
        self._end: dict[str, Array] = {}

    def fresh(self, rng: np.random.Generator) -> Case:
        """Random tokens and weights for one form of attention."""
        form = str(rng.choice(FORMS))
        n, d = int(rng.integers(1 if form == "local" else 2, 6)), int(rng.integers(1, 4))
        arrays = {"x": rng.normal(size=(n, d)) * 10 ** rng.uniform(-0.5, 0.5)}
        arrays |= {name: rng.normal(size=(d, d)) for name in NAMES[1:]}
        settings = {"kind": form, "strength": float(10 ** rng.uniform(-1, 1))}
        settings |= {"causal": bool(rng.random() < 0.3), "seed": int(rng.integers(1 << 31))}
        return Case(arrays, settings)

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """The end of an ascent, shaken."""
        size = 10 ** rng.uniform(-3, 0)
        moved = {name: case[name] + size * rng.normal(size=case[name].shape) for name in NAMES}
        strength = case["strength"] * float(np.exp(0.3 * rng.normal()))
        return case.but(**moved, strength=strength, seed=int(rng.integers(1 << 31)))

    def judge(self, case: Case) -> Array:
        """One ascent."""
        self._end = {}
        rule = {"local": self._local, "ball": self._ball, "token": self._token,
                "cosine": self._cosine, "l2": self._l2, "affinity": self._affinity,
                "layer": self._layer}[case["kind"]]  # fmt: skip
        return np.array([rule(case)])

    def improved(self, case: Case) -> Case:
        """The case at the end of its ascent."""
        return case.but(**self._end)

    def _climb(
        self, score, case: Case, names: tuple[str, ...] = NAMES
    ) -> tuple[float, list[Array]]:
        best, where = attack.ascend(score, [case[name] for name in names], steps=STEPS)
        if where is None:  # nothing to climb
            return 0.0, [case[name] for name in names]
        self._end = dict(zip(names, where, strict=True))
        return best, where

    def _local(self, case: Case) -> float:
        def score(p):
            w = dict(zip(NAMES[1:], p[1:], strict=True))
            full = oracle.derivative(lambda z: oracle.attend(w, z, z), p[0])
            return oracle.spectral(full) / attack.local_bound(w, p[0])

        _, (x, *w) = self._climb(score, case)
        layer = attention.Layer(*w, scale=1.0)
        bound = attention.dot_product(layer, x).upper
        return attention.dot_product(layer, x, exact=True).lower / bound

    def _ball(self, case: Case) -> float:
        n, d = case["x"].shape
        mask = torch.ones(n, n, dtype=torch.bool).tril() if case["causal"] else None

        def score(p):
            w = {"wq": case["strength"] * attack.unit(p[1]), "wk": torch.eye(d, dtype=p[1].dtype),
                 "wv": attack.unit(p[3])}  # fmt: skip
            point = attack.inside(p[0])
            return oracle.spectral(
                oracle.derivative(lambda z: oracle.attend(w, z, z, mask=mask), point)
            ) + 0.0 * p[2].sum()  # fmt: skip

        best, _ = self._climb(score, case)
        layer = attention.Layer(case["strength"] * np.eye(d), np.eye(d), np.eye(d), scale=1.0)
        bound = attention.dot_product_ball(layer, 1.0, n=n, causal=case["causal"]).upper
        return best * (1 - 1e-12) / bound

    def _token(self, case: Case) -> float:
        """At the tokens as they are; the norm of the derivative is bounded from below."""
        x, *w = (case[name] for name in NAMES)
        layer = attention.Layer(*w, scale=1.0)
        matrix = torch.as_tensor(np.asarray(attention.jacobian(layer, x)))
        found = oracle.token_norm(matrix, (w[2].shape[0], x.shape[1]), tries=20)
        return found * (1 - 1e-12) / attention.dot_product(layer, x, norm="token").upper

    def _cosine(self, case: Case) -> float:
        n, scale = len(case["x"]), case["strength"]
        options = {"scale": scale, "nu": 1.0, "epsilon": 1.0}

        def true(p):
            return oracle.spectral(
                oracle.derivative(lambda z: oracle.cosine(*p[1:], z, **options), p[0])
            )

        def score(p):
            q, k, v = (oracle.spectral(w) for w in p[1:])
            return true(p) / (scale * q + math.sqrt(n) * (scale * k + v))

        _, where = self._climb(score, case)
        found = float(true([oracle.tensor(a) for a in where]))
        return found * (1 - 1e-12) / attention.cosine(*where[1:], n=n, **options).upper

    def _l2(self, case: Case) -> float:
        names = ("x", "wq", "wv")

        def score(p):
            w = [attack.unit(a) for a in p[1:]]
            return oracle.spectral(
                oracle.derivative(lambda z: oracle.neighbours(*w, None, z), p[0])
            )

        best, where = self._climb(score, case, names)
        w = [a / np.linalg.norm(a, 2) for a in where[1:]]
        return best * (1 - 1e-10) / attention.l2(*w, n=len(case["x"])).upper

    def _affinity(self, case: Case) -> float:
        """Keys are the tokens, the query is a row of a weight."""

        def true(keys, query):
            return oracle.spectral(
                oracle.derivative(lambda q: torch.softmax(keys @ q, dim=0), query)
            )

        def score(p):
            return true(p[0], p[1][0]) / torch.pdist(p[0]).max()

        _, (keys, query) = self._climb(score, case, ("x", "wq"))
        found = float(true(oracle.tensor(keys), oracle.tensor(query[0])))
        return found * (1 - 1e-12) / attention.affinity(keys, scale=1.0).upper

    def _layer(self, case: Case) -> float:
        """A layer of any form, with heads, masks, biases, caps and rotations, where it stands."""
        rng = np.random.default_rng(case["seed"])
        w, options, place, x, y = oracle.random_layer(rng, cross=bool(rng.random() < 0.3))
        function, points = oracle.run(w, options, place, x, y)
        true = float(oracle.spectral(oracle.derivative(function, *points)))
        layer = attention.Layer(**w, **options)
        bound = attention.dot_product(layer, x, context=y, **place).upper
        return true * (1 - 1e-12) / bound if true > 0 else 0.0
