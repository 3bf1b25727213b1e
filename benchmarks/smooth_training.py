"""Training that keeps a network smooth where it is certified.

What a certificate loses beside the derivative grows with how much every operation that is not
linear sees of a small move: a norm layer as a share of its token, a softmax in its scores, GELU
before its curve. :func:`change` measures this with pairs of noisy images x ± n, as the mean over
random directions n is a Frobenius norm, and training keeps it small. The residual stream starts
with longer tokens, of which a move is a smaller share.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.published_networks import MNIST_SCALE

NOISE = 0.15 / MNIST_SCALE  # of every pixel: 0.15 raw
WEIGHTS = {"norm": 0.12, "scores": 0.03, "activation": 0.003}  # of the penalties
PLACES = 0.3  # standard deviation of places and of the class token at the start
RAMP = 0.3  # share of all steps in which the penalty grows to its weight

Seen = list[tuple[str, torch.Tensor]]


def seen(net: Any, x: torch.Tensor) -> tuple[torch.Tensor, Seen]:
    """Logits, and what every operation is given that is not linear.

    Of a norm layer these are its tokens, of a softmax its scores and, below them, its weights.
    The last layer counts only as far as the class token reads it.
    """
    found: Seen = []
    z = torch.cat((net.first.expand(len(x), 1, -1), net.patch(x)), dim=1) + net.places
    for index, layer in enumerate(net.encoder.layers):
        last = index == len(net.encoder.layers) - 1
        found.append(("norm", z))
        attention = layer.self_attn
        joined = functional.linear(
            layer.norm1(z), attention.in_proj_weight, attention.in_proj_bias
        ).chunk(3, dim=-1)
        q, k, v = (each.unflatten(-1, (attention.num_heads, -1)).transpose(1, 2) for each in joined)
        q, z = (q[:, :, :1], z[:, :1]) if last else (q, z)
        scores = q @ k.mT / q.shape[-1] ** 0.5
        p = scores.softmax(dim=-1)
        found.append(("scores", torch.stack((scores, p), dim=1)))
        z = z + attention.out_proj((p @ v).transpose(1, 2).flatten(2))
        found.append(("norm", z))
        hidden = layer.linear1(layer.norm2(z))
        found.append(("activation", hidden))
        z = z + layer.linear2(functional.gelu(hidden))
    found.append(("norm", z))
    return net.head(net.encoder.norm(z))[:, 0], found


def change(kind: str, x: torch.Tensor) -> torch.Tensor:
    """Half the square of the distance of both halves of a batch, as an operation sees it."""
    one, other = x.chunk(2)
    move, middle = (one - other) / 2, (one + other) / 2
    if kind == "norm":
        move = move - move.mean(dim=-1, keepdim=True)
        middle = middle - middle.mean(dim=-1, keepdim=True)
        return (move.square().sum(dim=-1) / middle.square().sum(dim=-1)).sum(dim=-1)
    if kind == "scores":
        move, p = move[:, 0], middle[:, 1]
        move = move - (p * move).sum(dim=-1, keepdim=True)
        return (p * move.square()).sum(dim=(1, 2, 3))
    return move.square().sum(dim=(1, 2))


def train_smooth(
    net: Any, x: torch.Tensor, labels: torch.Tensor, epochs: int, batches: int = 100
) -> None:
    """AdamW with one cycle of the learning rate, on noisy images, with the penalty.

    Weights of maps decay; places, the class token and norm layers do not.
    """
    with torch.no_grad():
        for each in (net.places, net.first):
            each.copy_(torch.randn_like(each) * PLACES)
    kept = [p for name, p in net.named_parameters() if _is_kept(name)]
    decayed = [p for name, p in net.named_parameters() if not _is_kept(name)]
    groups = [
        {"params": decayed, "weight_decay": 0.05},
        {"params": kept, "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, 2e-3)
    steps = epochs * len(torch.arange(len(x)).split(batches))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    done = 0
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(len(x)), batches):
            done += 1
            noise = torch.randn_like(x[batch]) * NOISE
            logits, places = seen(net, torch.cat((x[batch] + noise, x[batch] - noise)))
            loss = functional.cross_entropy(logits, labels[batch].repeat(2))
            penalty = sum(WEIGHTS[kind] * change(kind, each).mean() for kind, each in places)
            loss = loss + min(1.0, done / (steps * RAMP)) * penalty / NOISE**2
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimiser.step()
            schedule.step()


def _is_kept(name: str) -> bool:
    return name in ("places", "first") or "norm" in name
