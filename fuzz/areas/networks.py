"""Certificates of networks: every node of propagated bounds, and attacks on what they promise."""

from __future__ import annotations

import math
import random

import numpy as np
import torch
from torch import nn

import taut
from fuzz.area import Area
from fuzz.case import Array, Case
from taut import networks
from taut.networks.propagation.node import UnboundedError
from tests.helpers.propagation_attack import (
    check_every_bound,
    directions,
    engine_of,
    worst_steps,
)
from tests.helpers.random_networks import ACTIVATIONS, random_network

QUESTIONS = ("nodes", "propagate", "certify", "radius")
NORMS = (1.0, 2.0, math.inf)


class Networks(Area):
    """How much of a bound is used at points near an input, by attacks or at random."""

    name = "networks"
    goal = 10_000
    unit = "networks"
    ratio = "change found over its bound, or certified over attacked radius"

    def fresh(self, rng: np.random.Generator) -> Case:
        """A random network, a question about it, and a radius."""
        settings = {"kind": str(rng.choice(QUESTIONS, p=[0.4, 0.3, 0.2, 0.1])),
                    "network": int(rng.integers(1 << 31)), "norm": float(rng.choice(NORMS)),
                    "radius": float(10 ** rng.uniform(-4, 0.5)),
                    "seed": int(rng.integers(1 << 31))}  # fmt: skip
        return Case({}, settings)

    def changed(self, case: Case, rng: np.random.Generator) -> Case:
        """The same network at another radius, or attacked in another way."""
        radius = case["radius"] * float(np.exp(rng.normal()))
        norm = case["norm"] if rng.random() < 0.7 else float(rng.choice(NORMS))
        return case.but(radius=radius, norm=norm, seed=int(rng.integers(1 << 31)))

    def judge(self, case: Case) -> Array:
        """One question."""
        rule = {"nodes": nodes, "propagate": propagated, "certify": certified, "radius": radius}
        return np.array([rule[case["kind"]](case)])


def _norm(case: Case) -> float:
    return math.inf if math.isinf(case["norm"]) else int(case["norm"])


def nodes(case: Case) -> float:
    """Every box, size and random row of every node of a network of odd operations."""
    net, x = random_network(case["network"])
    norm, size = _norm(case), case["radius"]
    steps = directions(tuple(x.shape[1:]), norm, 18, case["seed"]) * size
    shrunk = torch.rand(9, generator=torch.Generator().manual_seed(case["seed"]))
    steps[9:] *= shrunk.double().reshape(-1, 1, 1)
    try:
        engine, question = engine_of(net, x, size, norm)
        return check_every_bound(engine, question, x + steps, seed=case["seed"])
    except UnboundedError:
        return 0.0


def small_network(seed: int) -> tuple[nn.Module, torch.Tensor]:
    """A network that can be run and attacked as a whole, and an input."""
    random.seed(seed)
    torch.manual_seed(seed)
    width = random.choice([2, 4, 6])
    if random.random() < 0.3:
        net: nn.Module = nn.TransformerEncoderLayer(
            4, random.choice([1, 2]), 6, dropout=0.0, batch_first=True,
            norm_first=random.random() < 0.5,
        )  # fmt: skip
        x = torch.randn(1, random.choice([1, 2, 4]), 4, dtype=torch.float64)
    else:
        parts: list[nn.Module] = []
        for _ in range(random.randint(1, 3)):
            parts += [nn.Linear(width, width), random.choice(ACTIVATIONS)()]
        parts += [nn.LayerNorm(width)] if random.random() < 0.3 else []
        net = nn.Sequential(*parts, nn.Linear(width, 3))
        x = torch.randn(1, width, dtype=torch.float64)
    gain = random.choice([0.3, 1, 1, 3])
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.mul_(gain)
    return net.double().eval(), x


def propagated(case: Case) -> float:
    """Rows on the output against projected gradient steps, in both directions."""
    net, x = small_network(case["network"])
    norm, size = _norm(case), case["radius"]
    source = torch.Generator().manual_seed(case["seed"])
    shape = net(x).shape[1:]
    goals = torch.randn(2, math.prod(shape), generator=source, dtype=torch.float64)
    found = networks.propagate(net, taut.At(x, size), norm=norm, targets=goals.reshape(2, *shape))
    torch.manual_seed(case["seed"])
    steps = worst_steps(net, x[0], norm, size, goals, steps=8)
    with torch.no_grad():
        values = net(x + steps).reshape(len(steps), -1) @ goals.T
        centre = net(x).reshape(1, -1) @ goals.T
    low, high = (torch.as_tensor(side[0]) for side in (found.bound.lower, found.bound.upper))
    moved = values - centre
    room = torch.where(moved > 0, high - centre, centre - low)
    doubt = 1e-12 * (1 + centre.abs() + goals.abs().sum())
    return float(((moved.abs() - doubt).clamp(min=0) / room.clamp(min=1e-300)).max())


def certified(case: Case) -> float:
    """The constant near an input against the derivative at points there."""
    net, x = small_network(case["network"])
    size = case["radius"]
    bound = networks.certify(net, taut.At(x, size), measure=False).bound
    upper = float(np.max(bound.upper))
    steps = directions(tuple(x.shape[1:]), 2, 6, case["seed"]) * size
    found = 0.0
    for step in (torch.zeros_like(x[0]), *steps):
        matrix = torch.func.jacrev(lambda z: net(z).flatten())(x + step).detach()
        found = max(found, float(torch.linalg.matrix_norm(matrix.reshape(len(matrix), -1), 2)))
    return found * (1 - 1e-12) / upper if found > 0 else 0.0


def radius(case: Case) -> float:
    """The certified radius of a classification against the smallest that an attack needs."""
    random.seed(case["network"])
    torch.manual_seed(case["network"])
    act = random.choice(ACTIVATIONS[:10])
    net = nn.Sequential(nn.Linear(3, 6), act(), nn.Linear(6, 6), act(), nn.Linear(6, 3)).double()
    x = torch.randn(1, 3, dtype=torch.float64)
    found = networks.certified_radius(net, x, norm=_norm(case), steps=8)
    if not found.radius[0] > 0:
        return 0.0
    return float(found.radius[0] / found.attack_radius()[0])
