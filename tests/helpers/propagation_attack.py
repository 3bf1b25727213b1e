"""Attacks on propagated bounds: points of a ball, and every recorded value at these points."""

from __future__ import annotations

import math

import torch

from taut import At
from taut.networks.propagation.engine import Engine
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.record import record
from taut.networks.propagation.rows import Rows
from taut.networks.question import ask

CPU = torch.device("cpu")


def onto(step: torch.Tensor, norm: float, radius: float) -> torch.Tensor:
    """Steps (count, ...) scaled onto the sphere of a norm."""
    flat = step.flatten(1)
    size = {1: flat.abs().sum(1), 2: flat.norm(dim=1), math.inf: flat.abs().amax(1)}[norm]
    return step * (radius * (1 - 1e-12) / size.clamp(min=1e-30)).reshape(-1, *[1] * (step.ndim - 1))


def directions(shape: tuple[int, ...], norm: float, count: int, seed: int) -> torch.Tensor:
    """Unit steps of several kinds: dense, sparse, at corners."""
    source = torch.Generator().manual_seed(seed)
    found = torch.randn(count, *shape, generator=source, dtype=torch.float64)
    third = count // 3
    found[:third] = found[:third].sign()
    flat = found[third : 2 * third].flatten(1)
    keep = flat.abs() >= flat.abs().topk(min(2, flat.shape[1]), dim=1).values[:, -1:]
    found[third : 2 * third] = (flat * keep).reshape(-1, *shape)
    return onto(found, norm, 1.0)


def worst_steps(function, x, norm, radius, goals, steps=12):
    """Projected gradient steps that make each goal (a row on the output) small, then large."""
    found = []
    for sign in (1.0, -1.0):
        step = torch.zeros(len(goals), *x.shape, dtype=torch.float64)
        step += 1e-3 * radius * torch.randn(step.shape, dtype=torch.float64)
        for turn in range(steps):
            moved = step.detach().requires_grad_(True)
            value = (function(x + moved).reshape(len(goals), -1) * goals).sum()
            (slope,) = torch.autograd.grad(sign * value, moved)
            slope = -slope
            if norm == math.inf:
                ahead = slope.sign() * radius
            elif norm == 2:
                ahead = onto(slope, 2, radius)
            else:
                flat = slope.flatten(1)
                best = flat.abs().argmax(dim=1, keepdim=True)
                ahead = torch.zeros_like(flat).scatter(
                    1, best, flat.gather(1, best).sign() * radius
                )
                ahead = ahead.reshape(step.shape)
            share = 2.0 / (turn + 2)
            step = (1 - share) * step + share * ahead  # inside: a convex combination
        found.append(step.detach() * (1 - 1e-12))
    return torch.cat(found)


def engine_of(module, x, radius, norm, *, eps=0.0, scale=None, checkpoints=None, **inputs):
    """The engine for one input (1, tokens, width), and the question it answers."""
    question, _ = ask(
        module,
        At(x),
        inputs.get("context"),
        inputs.get("mask"),
        inputs.get("context_mask"),
        "l2",
        0,
    )
    tape = record(question, 0, CPU)
    sizes = torch.ones_like(tape[0].centre) if scale is None else scale
    ball = InputSet(radius, norm, sizes)
    return Engine(tape, ball, eps, checkpoints=checkpoints), question


def check_every_bound(engine, question, points, *, rows=3, seed=0):
    """Every box, size and random row of every node holds at the points (count, *input).

    Returns how much of a bound was used at most.
    """
    source = torch.Generator().manual_seed(seed)
    used, tests = 0.0, []
    for node in engine.nodes[1:]:
        index = node.needed.nonzero()[:, 0]
        values = torch.randn(rows, node.tokens, node.width, generator=source, dtype=torch.float64)
        values[:, ~node.needed] = 0.0
        if len(index):
            tests.append((node, index, values, *engine.interval([(node, Rows(values))])))
    for point in points:
        tape = record(question.at(point[None]), 0, CPU)
        for node, index, values, low, high in tests:
            where = (node.kind, node.path)
            moved = (tape[node.index].centre - node.centre)[index]
            # the recorded values are rounded as well
            allowed = 1e-12 * (1 + node.centre.abs()[index])
            if node.box is not None:
                assert (moved.abs() <= node.box[index] + allowed).all(), ("box", where)
            far = node.sizes[index] + allowed.norm(dim=-1)
            assert (moved.norm(dim=-1) <= far).all(), ("size", where)
            value = (values[:, index] * moved).flatten(1).sum(dim=1)
            doubt = (values[:, index].abs() * allowed).flatten(1).sum(dim=1)
            assert (value >= low - doubt).all(), ("from below", where)
            assert (value <= high + doubt).all(), ("from above", where)
            surely = (value.abs() - doubt).clamp(min=0.0)
            used = max(used, float((surely / torch.where(value > 0, high, -low)).max()))
    return used
