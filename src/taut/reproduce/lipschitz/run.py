"""One training under a certificate: what is trained, how, and what is measured at the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from taut._base.domain import Ball
from taut._base.progress import shown
from taut.control import LipschitzTransformer, WeightLimits, cap
from taut.networks import certify
from taut.reproduce.lipschitz.characters import Characters, drawn_batch, fixed_batches
from taut.reproduce.lipschitz.newhouse_network import (
    NewhouseTransformer,
    limit_for,
    limits,
    their_bound,
)

RADII = (0.003, 0.01, 0.03, 0.1)  # root mean square, of every embedding at once
SIZES = {"tokens": 256, "width": 256, "layers": 3, "heads": 4}


class TextRun(NamedTuple):
    """What tells one training from another.

    Attributes
    ----------
    method
        ``"taut"`` or ``"newhouse"``.
    target
        The bound; None for weights without limits.
    optimiser
        ``"muon"`` (for the maps, AdamW for the rest) or ``"adamw"``.
    temperature
        What logits are multiplied by in the loss; 1 is the usual loss.
    """

    method: str
    target: float | None
    optimiser: str
    seed: int
    steps: int
    batch: int
    temperature: float = 1.0

    @property
    def name(self) -> str:
        """A name for its file."""
        target = "free" if self.target is None else f"{self.target:g}"
        sharp = "" if self.temperature == 1 else f"-t{self.temperature:g}"
        return (
            f"{self.method}-{target}{sharp}-{self.optimiser}-{self.seed}-{self.steps}x{self.batch}"
        )


def train(run: TextRun, text: Characters, what: str) -> dict[str, Any]:
    """Train a network of characters and judge it; ``what`` names it beside the progress bar."""
    torch.manual_seed(run.seed)
    source = torch.Generator().manual_seed(run.seed)
    model, after_step = _built(run, len(text.alphabet))
    optimisers = list(_optimisers(run, model))
    begun, losses = time.perf_counter(), []
    for step in shown(range(run.steps), run.steps, what):
        ids, following = drawn_batch(text.train, run.batch, SIZES["tokens"], source)
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids)
        loss = nn.functional.cross_entropy(
            run.temperature * logits.float().flatten(0, 1), following.flatten()
        )
        for optimiser, rate in optimisers:
            optimiser.zero_grad()
            for group in optimiser.param_groups:
                group["lr"] = rate * (1 - step / run.steps)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimiser, _ in optimisers:
            optimiser.step()
        after_step()
        losses.append(float(loss.detach()))
    seconds = time.perf_counter() - begun
    return {**run._asdict(), **_judged(run, model, text), "losses": losses, "seconds": seconds}


def _built(run: TextRun, words: int) -> tuple[nn.Module, Callable[[], None]]:
    """The network, and what keeps it in its limits."""
    model: nn.Module
    if run.method == "newhouse":
        model = NewhouseTransformer(words, **SIZES)
        most = math.inf if run.target is None else limit_for(run.target, SIZES["layers"])
        return model, lambda: _keep_newhouse(model, most)
    if run.method != "taut":
        raise ValueError(f"method must be taut or newhouse, got {run.method!r}")
    made = LipschitzTransformer.of_text(words, target=run.target or 100.0, **SIZES)
    if run.target is None:
        return made, lambda: None
    return made, WeightLimits(made).start().after_step


@torch.no_grad()
def _keep_newhouse(model: Any, most: float) -> None:
    if most < math.inf:
        for weight, limit in limits(model, most):
            weight.copy_(cap(weight, limit, method="soft_cap"))
    length = torch.linalg.vector_norm(model.embedding, dim=1, keepdim=True)
    model.embedding.mul_((model.width**0.5 / length).clamp(max=1.0))


def _optimisers(run: TextRun, model: nn.Module) -> Iterator[tuple[torch.optim.Optimizer, float]]:
    """Optimisers and their first rates, which fall to zero linearly."""
    maps = [p for name, p in model.named_parameters() if _is_map(name)]
    rest = [p for name, p in model.named_parameters() if not _is_map(name)]
    options: dict[str, Any] = {"betas": (0.9, 0.95), "weight_decay": 0.0}
    if run.optimiser == "muon":
        rate = 0.1 if run.target is not None else 0.02
        yield torch.optim.Muon(maps, lr=rate, momentum=0.9, weight_decay=0.0), rate
        yield torch.optim.AdamW(rest, lr=0.01, **options), 0.01
    elif run.optimiser == "adamw":
        yield torch.optim.AdamW(maps, lr=0.003, **options), 0.003
        yield torch.optim.AdamW(rest, lr=0.01, **options), 0.01
    else:
        raise ValueError(f"optimiser must be muon or adamw, got {run.optimiser!r}")


def _is_map(name: str) -> bool:
    """Whether a parameter is a matrix inside a block."""
    last = name.rsplit(".", 1)[-1]
    inside = name.startswith("blocks.")
    return inside and last in ("query", "key", "value", "output", "first", "second")


@torch.no_grad()
def _judged(run: TextRun, model: nn.Module, text: Characters) -> dict[str, Any]:
    """Accuracy, loss, bounds and certified accuracy on what was held out."""
    model.eval()
    tokens, width = SIZES["tokens"], SIZES["width"]
    right, losses, margins = [], [], []
    for piece in fixed_batches(text.held_out, 8, tokens, 16):
        ids, following = piece[:, :-1], piece[:, 1:]
        logits = model(ids)
        losses.append(nn.functional.cross_entropy(logits.flatten(0, 1), following.flatten()))
        best = logits.topk(2).values
        correct = logits.argmax(-1) == following
        right.append(correct)
        margins.append(torch.where(correct, best[..., 0] - best[..., 1], -1.0))
    if isinstance(model, LipschitzTransformer):
        bound = float(model.certificate().upper)
    else:
        domain = Ball(math.sqrt(width), shape=(tokens, width))
        found = certify(model, domain, norm="token", measure=False).bound
        bound = float(found.upper[0]) * math.sqrt(width / len(text.alphabet))
    # A logit less another moves at most √2 times as far as all of them do in l2, which is
    # √words times their root mean square.
    margin = torch.cat([m.flatten() for m in margins])
    radius = margin / (bound * math.sqrt(2 * len(text.alphabet)))
    return {
        "accuracy": float(torch.cat([r.flatten() for r in right]).double().mean()),
        "loss": float(torch.stack(losses).mean()),
        "bound": bound,
        "their_formula": their_bound(model) if isinstance(model, NewhouseTransformer) else None,
        "certified": {str(r): float((radius >= r).double().mean()) for r in RADII},
        "characters": len(margin),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
