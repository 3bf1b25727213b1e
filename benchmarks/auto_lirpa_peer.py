"""auto_LiRPA on the same networks: CROWN and α-CROWN, if it can be imported.

It is not on the Python Package Index in a form for this version of PyTorch. Put a checkout of it
(https://github.com/Verified-Intelligence/auto_LiRPA) and the packages ``appdirs`` and ``graphviz``
on PYTHONPATH. Without it the benchmarks leave it out and say so.
"""

from __future__ import annotations

import importlib.util
import math
import time
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.published_networks import FoldedTransformer


def is_available() -> bool:
    return importlib.util.find_spec("auto_LiRPA") is not None


class PlainTransformer(nn.Module):
    """The same network of one layer in operations that auto_LiRPA traces, for one input."""

    def __init__(self, net: FoldedTransformer) -> None:
        super().__init__()
        self.heads, self.scale = net.heads, net.scale
        self.first = nn.Parameter(net.first.reshape(1, 1, -1).clone())
        self.shift = nn.Parameter(net.be.clone())
        self.embed = _linear(net.E, torch.zeros(len(net.E), dtype=torch.float64))
        self.maps = nn.ModuleDict({name: _linear(*net.map(name, 0)) for name in "qkvo12"})
        self.head = _linear(net.Wh, net.bh)

    def _split(self, x: torch.Tensor, name: str) -> torch.Tensor:
        y = self.maps[name](x)
        return y.reshape(1, y.shape[1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Logits."""
        z = torch.cat((self.first, self.embed(patches) + self.shift), 1)
        x = z[:, 0]
        q = self.maps["q"](x).reshape(1, self.heads, 1, -1)
        k, v = self._split(z, "k"), self._split(z, "v")
        weights = torch.softmax(torch.matmul(q, k.permute(0, 1, 3, 2)) * self.scale, dim=-1)
        o = torch.matmul(weights, v).reshape(1, -1)
        z = x + self.maps["o"](o)
        z = z + self.maps["2"](torch.relu(self.maps["1"](z)))
        return self.head(z)


def _linear(weight: torch.Tensor, bias: torch.Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0]).to(weight)
    with torch.no_grad():
        layer.weight.copy_(weight)
        layer.bias.copy_(bias)
    return layer


class Peer:
    """Margins of one network by a method of auto_LiRPA: IBP, CROWN or α-CROWN."""

    def __init__(self, net: FoldedTransformer, like: torch.Tensor, method: str) -> None:
        from auto_LiRPA import BoundedModule

        self.method = {"α-CROWN": "CROWN-Optimized"}.get(method, method)

        # in float32: it mixes types otherwise
        plain = PlainTransformer(net).float()
        # α-CROWN fails with sparse intermediate bounds on products of two values
        options = {"sparse_intermediate_bounds": False} if method == "α-CROWN" else {}
        options |= {"optimize_bound_args": {"iteration": 20}}
        self.model: Any = BoundedModule(plain, like.float(), bound_opts=options, verbose=False)

    def margin(self, x: torch.Tensor, label: int, radius: float, norm: float) -> float:
        """Lower bound of the smallest margin within a radius."""
        from auto_LiRPA import BoundedTensor
        from auto_LiRPA.perturbations import PerturbationLpNorm

        classes = 10
        others = [c for c in range(classes) if c != label]
        rows = torch.zeros(1, len(others), classes)
        rows[0, :, label] = 1
        rows[0, range(len(others)), others] = -1
        ball = BoundedTensor(x.float(), PerturbationLpNorm(norm=norm, eps=radius))
        low, _ = self.model.compute_bounds(
            x=(ball,), C=rows, method=self.method, bound_upper=False
        )  # fmt: skip
        found = float(low.detach().min())
        return found if math.isfinite(found) else -math.inf


def peer_radii(
    net: FoldedTransformer, x: torch.Tensor, most: np.ndarray, norm: float, method: str, steps: int
) -> tuple[np.ndarray, float]:
    """Largest radii that it certifies, by bisection below ``most``, and seconds for a bound."""
    found, begin, bounds = [], time.process_time(), 0
    for one, high in zip(x, most, strict=True):
        peer = Peer(net, one[None], method)
        label, low, high = int(net(one[None]).argmax()), 0.0, float(high)
        for _ in range(steps):
            middle = (low + high) / 2
            bounds += 1
            holds = peer.margin(one[None], label, middle, norm) > 0
            low, high = (middle, high) if holds else (low, middle)
        found.append(low)
    return np.array(found), (time.process_time() - begin) / bounds
