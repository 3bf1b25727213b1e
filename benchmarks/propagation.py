"""Certified radii of published networks, beside attacks and interval bounds.

``python -m benchmarks.propagation 100`` prints the table of docs/results/certified-radii.md.
"""

from __future__ import annotations

import math
import sys
import time

import numpy as np
import torch

from benchmarks.published_networks import MNIST_SCALE, FoldedTransformer, mnist
from benchmarks.timing import table
from taut.networks import certified_radius

PUBLISHED = {1: 0.668, 2: 0.191, math.inf: 0.0192}  # DeepT's own mean radii, raw pixels


def radii(images: int) -> str:
    """Mean radii of the first correctly classified test images of MNIST, in raw pixels."""
    torch.set_num_threads(1)
    net, x, labels = mnist(2 * images)
    x = x[net(x).argmax(dim=1) == labels][:images]
    rows = []
    for norm in (1, 2, math.inf):
        begin = time.process_time()
        found = certified_radius(net, x, norm=norm)
        seconds = (time.process_time() - begin) / images
        attack = found.attack_radius(steps=30)
        inside = found.attack(steps=30, restarts=2)
        assert (inside > 0).all()
        assert (found.radius <= attack).all()
        rows.append({
            "norm": f"l{norm:g}",
            "certified": f"{found.radius.mean() * MNIST_SCALE:.4f}",
            "attack": f"{attack.mean() * MNIST_SCALE:.4f}",
            "certified/attack": f"{found.radius.mean() / attack.mean():.2f}",
            "first order": f"{found.first_order.mean() * MNIST_SCALE:.4f}",
            "DeepT (published)": f"{PUBLISHED[norm]:g}",
            "interval bounds": f"{interval_radius(net, x, norm).mean() * MNIST_SCALE:.5f}",
            "seconds an image": f"{seconds:.2f}",
        })  # fmt: skip
        print(rows[-1], flush=True)
    return table(list(rows[0]), [list(row.values()) for row in rows])


@torch.no_grad()
def interval_radius(net: FoldedTransformer, x: torch.Tensor, norm: float) -> np.ndarray:
    """Largest radius that plain interval arithmetic certifies, by bisection."""
    found = []
    for one in x:
        label = int(net(one[None]).argmax())
        low, high = 0.0, 1.0
        for _ in range(20):
            middle = (low + high) / 2
            holds = _interval_margin(net, one, label, middle, norm) > 0
            low, high = (middle, high) if holds else (low, middle)
        found.append(low)
    return np.array(found)


def _interval_margin(
    net: FoldedTransformer, x: torch.Tensor, label: int, radius: float, norm: float
) -> float:
    """Lower end of the smallest margin, every operation by the box of its inputs."""

    def affine(c, r, weight, bias):
        return c @ weight.mT + bias, r @ weight.abs().mT

    dual = {1: net.E.abs().amax(1), 2: net.E.norm(dim=1), math.inf: net.E.abs().sum(1)}[norm]
    c = torch.cat((net.first[None], x @ net.E.mT + net.be))
    r = torch.cat((torch.zeros_like(dual)[None], dual.expand(len(x), -1) * radius))
    q, k, v = (
        [z.unflatten(-1, (net.heads, -1)).transpose(0, 1) for z in affine(a, b, *net.map(name, 0))]
        for name, a, b in (("q", c[:1], r[:1]), ("k", c, r), ("v", c, r))
    )
    scores = net.scale * q[0] @ k[0].mT
    width = net.scale * (q[1] @ k[0].abs().mT + (q[0].abs() + q[1]) @ k[1].mT)
    high, low = torch.softmax(scores + width, -1), torch.softmax(scores - width, -1)
    both = torch.exp(2 * width.amax(-1, keepdim=True))
    high, low = (high * both).clamp(max=1.0), low / both
    middle, half = (high + low) / 2, (high - low) / 2
    o = middle @ v[0]
    spread = half @ (v[0].abs() + v[1]) + middle @ v[1]
    o, spread = (z.transpose(0, 1).flatten(1) for z in (o, spread))
    a, b = affine(o, spread, *net.map("o", 0))
    c, r = c[:1] + a, r[:1] + b
    a, b = affine(c, r, *net.map("1", 0))
    top, bottom = (a + b).relu(), (a - b).relu()
    a, b = affine((top + bottom) / 2, (top - bottom) / 2, *net.map("2", 0))
    c, r = c + a, r + b
    rows = net.Wh[label] - net.Wh
    value = c @ rows.mT + net.bh[label] - net.bh - r @ rows.abs().mT
    value[0, label] = math.inf
    return float(value.min())


if __name__ == "__main__":
    print(radii(int(sys.argv[1])))
