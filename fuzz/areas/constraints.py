"""Constraints of training: what they verify of odd weights after a few steps, against an SVD."""

from __future__ import annotations

import math

import numpy as np
import torch

from fuzz.area import Area
from fuzz.case import Array, Case
from taut import control

KINDS = ("projection", "projection per head", "orthogonal", "VAR-III", "LA beside",
         "local constant", "sigma", "soft cap", "qk clip")  # fmt: skip
PATTERNS = ("gaussian", "low rank", "zero", "diagonal", "tiny", "huge", "one entry")


class Constraints(Area):
    """Largest singular value, or constant, over its certificate and over the limit."""

    name = "constraints"
    goal = 10_000
    unit = "models"
    ratio = "what was measured over its certificate, or over the limit"

    def fresh(self, rng: np.random.Generator) -> Case:
        """A small layer, its weights of some pattern, and a constraint."""
        kind, pattern = str(rng.choice(KINDS)), str(rng.choice(PATTERNS))
        settings = {"kind": kind, "pattern": pattern, "limit": float(10 ** rng.uniform(-3, 1)),
                    "rate": float(10 ** rng.uniform(-3, 1)), "wide": bool(rng.random() < 0.4),
                    "seed": int(rng.integers(1 << 31))}  # fmt: skip
        return Case({}, settings)

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """The same constraint and pattern, with another limit, rate or draw."""
        change = {"limit": case["limit"] * float(np.exp(rng.normal())),
                  "rate": case["rate"] * float(np.exp(rng.normal()))}  # fmt: skip
        if rng.random() < 0.5:
            change["seed"] = int(rng.integers(1 << 31))
        return case.but(**change)

    def judge(self, case: Case) -> Array:
        """The largest ratio of all matrices or heads of the model."""
        torch.manual_seed(case["seed"])
        model = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        model = model.double() if case["wide"] else model
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 2:
                    weight.copy_(patterned(weight, case["pattern"]))
        if case["kind"] == "sigma" and any(w.ndim == 2 and not w.any() for w in model.parameters()):
            return np.zeros(1)  # refused: such a weight cannot be divided by its norm
        constraint = made(model, case["kind"], case["limit"])
        constraint.start()
        optimizer = torch.optim.SGD(model.parameters(), lr=case["rate"])
        constraint.start(optimizer)
        x = torch.randn(2, 5, 8, dtype=torch.float64 if case["wide"] else torch.float32)
        for _ in range(2):
            optimizer.zero_grad()
            (model(x).square().mean() + constraint.penalty()).backward()
            optimizer.step()
            constraint.after_step()
        model(x)
        ratios = [ratio(row, case) for row in constraint.verify()]
        constraint.stop()
        return np.array(
            [max(ratios, default=0.0) if not any(map(math.isnan, ratios)) else math.nan]
        )


def ratio(row: control.Verified, case: Case) -> float:
    """How far a verified row is from what it promises; NaN if it does not hold."""
    if not math.isfinite(row.largest):  # the training diverged, and nothing is promised
        return 0.0 if not row.holds else math.nan
    found = [row.largest * (1 - 1e-13) / b.upper for b in row.certificates if row.largest > 0]
    if case["kind"].startswith("projection"):
        # what was brought back into the limit stays below it, certificate included
        found.append(1.0 if row.holds else math.nan)
    return max(found, default=0.0)


def made(model: torch.nn.Module, kind: str, limit: float) -> control.Constraint:
    """A constraint of a model."""
    if kind == "projection":
        return control.Projection(model, limit=limit)
    if kind == "projection per head":
        return control.Projection(model, limit=limit, per_head=True)
    if kind == "orthogonal":
        return control.Projection(model, limit=None)
    if kind == "VAR-III":
        return control.Orthogonality(model, "VAR-III", strength=limit)
    if kind == "LA beside":
        return control.Orthogonality(model, "LA", strength=limit, join="beside")
    if kind == "local constant":
        return control.LocalConstant(model, limit=min(limit, 0.4))
    if kind == "sigma":
        return control.SigmaReparametrisation(model)
    return (control.SoftCap if kind == "soft cap" else control.QKClip)(model, limit=limit)


def patterned(weight: torch.Tensor, pattern: str) -> torch.Tensor:
    """Weights of the same shape that are hard for some algorithm."""
    plain = torch.randn_like(weight)
    rows, columns = weight.shape
    if pattern == "low rank":
        return torch.randn(rows, 1, dtype=plain.dtype) @ torch.randn(1, columns, dtype=plain.dtype)
    if pattern == "zero":
        return torch.zeros_like(plain)
    if pattern == "diagonal":
        return torch.eye(rows, columns, dtype=plain.dtype)
    if pattern == "one entry":
        empty = torch.zeros_like(plain)
        empty[-1, 0] = 3.0
        return empty
    return plain * {"gaussian": 1.0, "tiny": 1e-12, "huge": 1e6}[pattern]
