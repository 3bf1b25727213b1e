"""A small network within the limits of Newhouse et al. 2025 that moves farther than they allow."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from taut.reproduce.lipschitz.newhouse_network import NewhouseTransformer, their_bound

MAPS = ("query", "key", "value", "output")


class Counterexample(NamedTuple):
    """What their formula allows, and how far the logits of one token really move."""

    allowed: float
    found: float


def exceed_formula(seed: int, steps: int = 600) -> Counterexample:
    """Ascent over weights of norm at most 1 and tokens of root mean square at most 1.

    One block of four heads, whose feed-forward network passes nothing, in double precision. For a
    direction z of the logits of the last token, Σⱼ|∂⟨z, logits⟩/∂xⱼ| is how far they move when
    no token moves by more than 1.
    """
    torch.manual_seed(seed)
    width = words = 16
    model = NewhouseTransformer(words, tokens=4, width=width, layers=1, heads=4).double()
    block = model.blocks[0]
    raw = {name: torch.randn(width, width, dtype=torch.float64) for name in MAPS}
    x = torch.randn(4, width, dtype=torch.float64)
    z = torch.randn(words, dtype=torch.float64)
    optimiser = torch.optim.Adam([t.requires_grad_() for t in (*raw.values(), x, z)], lr=0.03)
    # torch.func runs the module with weights that depend on what is optimised.
    fixed = {"output": torch.eye(words, dtype=torch.float64)}
    best, kept = 0.0, {}
    for _ in range(steps):
        weights = {name: w / torch.linalg.matrix_norm(w, 2) for name, w in raw.items()}
        far = torch.linalg.vector_norm(x, dim=1, keepdim=True)
        tokens = x * (math.sqrt(width) / far).clamp(max=1.0)
        inside = {f"blocks.0.{name}": w for name, w in weights.items()}
        with sdpa_kernel(SDPBackend.MATH):  # the fused one has no second derivative
            logits = torch.func.functional_call(
                model, {**inside, **fixed}, kwargs={"inputs_embeds": tokens[None]}
            )
        (slope,) = torch.autograd.grad(
            (logits[0, -1] * z / z.norm()).sum(), tokens, create_graph=True
        )
        moved = slope.norm(dim=1).sum()
        if float(moved.detach()) > best:
            best, kept = float(moved.detach()), {n: w.detach().clone() for n, w in weights.items()}
        optimiser.zero_grad()
        (-moved).backward()
        optimiser.step()
    with torch.no_grad():
        model.output.copy_(fixed["output"])
        for name, weight in kept.items():
            getattr(block, name).copy_(weight)
    return Counterexample(their_bound(model), best)
