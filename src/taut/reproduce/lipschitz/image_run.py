"""One training of a classifier of digits: what is trained, how, and what is measured at the end."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from taut._base.optional import needing
from taut.control import LipschitzTransformer, WeightLimits
from taut.networks import certified_predictions
from taut.reproduce.lipschitz.digits import Digits, shifted
from taut.reproduce.lipschitz.torchlip_network import exported, torchlip_network

RADII = (0.1, 0.3, 0.5, 1.0)
CURVE = tuple(np.linspace(0.0, 2.0, 41).tolist())
CLASSES, BATCH = 10, 250
SIZES: dict[str, Any] = {"image": (1, 28, 28), "patch": 7, "width": 64, "heads": 4, "hidden": 64}


class ImageRun(NamedTuple):
    """What tells one training from another.

    Attributes
    ----------
    method
        ``"taut"``, ``"torchlip"`` or ``"plain"``.
    temperature
        What logits are multiplied by in the loss. The smaller it is, the larger the margins that
        are asked for, and the lower the accuracy (Béthune et al. 2022); no matter for ``"plain"``.
    head
        Units of a hidden layer that sees all patches, of ``"taut"``; 0 for none.
    """

    method: str
    layers: int
    temperature: float
    epochs: int
    seed: int
    head: int = 0

    @property
    def name(self) -> str:
        """A name for its file."""
        head = f"-h{self.head}" if self.head else ""
        return f"{self.method}-{self.layers}{head}-t{self.temperature:g}-{self.epochs}-{self.seed}"


def train_classifier(
    run: ImageRun, digits: Digits, attacked: int, report: Callable[[int, float], None]
) -> dict[str, Any]:
    """Train a network on the digits, and judge it on those that were held out."""
    torch.manual_seed(run.seed)
    source = torch.Generator().manual_seed(run.seed)
    model, after_step = _built(run)
    optimisers = list(_optimisers(run, model))
    many = len(digits.train)
    steps, step = run.epochs * -(-many // BATCH), 0
    begun = time.process_time()
    for epoch in range(run.epochs):
        for chosen in torch.split(torch.randperm(many, generator=source), BATCH):
            logits = _logits(model, shifted(digits.train[chosen], source))
            loss = nn.functional.cross_entropy(
                run.temperature * logits, digits.train_labels[chosen]
            )
            for optimiser, rate in optimisers:
                optimiser.zero_grad()
                for group in optimiser.param_groups:
                    group["lr"] = rate * (1 - step / steps)
            (loss / run.temperature).backward()  # type: ignore[no-untyped-call]
            for optimiser, _ in optimisers:
                optimiser.step()
            after_step()
            step += 1
        if not torch.isfinite(loss):
            raise FloatingPointError(f"the loss of {run.name} is not a number in epoch {epoch + 1}")
        report(epoch + 1, float(loss.detach()))
    seconds = time.process_time() - begun
    weights = sum(p.numel() for p in model.parameters())
    found: dict[str, Any] = {"steps": steps, "processor_seconds": seconds, "parameters": weights}
    if isinstance(model, LipschitzTransformer):
        found["attention_shares"] = [float(b.attention_share.detach()) for b in model.blocks]
    return {**run._asdict(), **found, **judged(model.eval(), digits, attacked)}


def judged(model: nn.Module, digits: Digits, attacked: int) -> dict[str, Any]:
    """Accuracy, radii and attacks on what was held out, in double precision and in single."""
    model = exported(model)
    wide = copy.deepcopy(model).double()
    images, labels = digits.held_out, digits.held_out_labels
    single = certified_predictions(model, images, labels)
    found = certified_predictions(wide, images.double(), labels)
    assert found.correct is not None
    tried = certified_predictions(wide, images[:attacked].double(), labels[:attacked])
    reached = tried.attack(steps=60, restarts=4)
    needed = tried.attack_radius(steps=40)
    held = tried.radius > 0
    right = np.asarray(tried.correct)
    return {
        "accuracy": float(found.correct.mean()),
        "bound": found.bound,
        "mean_radius": found.mean_radius(),
        "mean_radius_of_correct": found.mean_radius(correct_only=True),
        "mean_radius_in_float32": single.mean_radius(),
        "mean_radius_without_pairs": float(
            np.where(found.correct, found.margin, 0.0).mean() / (2**0.5 * found.bound)
        ),
        "certified": dict(zip(map(str, RADII), found.certified_accuracy(RADII), strict=True)),
        "curve": found.certified_accuracy(CURVE).tolist(),
        "held_out": len(labels),
        "attacked": len(tried.radius),
        "broken": int((reached[held] <= 0).sum()),
        "attack_radius_of_correct": _mean(needed[right]),
        "certified_radius_of_attacked": _mean(tried.radius[right]),
    }


def _mean(values: np.ndarray[Any, np.dtype[Any]]) -> float:
    """The mean of what is finite, as where an attack has found something; 0 if nothing is."""
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if finite.size else 0.0


def _logits(model: nn.Module, images: torch.Tensor) -> Any:
    found = model(images)
    return getattr(found, "logits", found)


def _built(run: ImageRun) -> tuple[nn.Module, Callable[[], object]]:
    """The network, and what keeps it in its limits."""
    if run.method == "plain":
        return _plain(run.layers), lambda: None
    if run.method == "torchlip":
        return torchlip_network(run.layers, CLASSES), lambda: None
    if run.method != "taut":
        raise ValueError(f"method must be taut, torchlip or plain, got {run.method!r}")
    model = LipschitzTransformer.of_images(
        CLASSES, layers=run.layers, target=1.0, activation="maxmin", sharpness=0.05,
        head=run.head or None, **SIZES,
    )  # fmt: skip
    return model, WeightLimits(model, method="orthogonal").start().after_step


def _plain(layers: int) -> nn.Module:
    """An ordinary vision transformer of the same size."""
    with needing("the ordinary network needs transformers", "hf"):
        from transformers import ViTConfig, ViTForImageClassification

    channels, side, _ = SIZES["image"]
    settings: Any = ViTConfig  # whose keywords are not all declared
    settings = settings(
        hidden_size=SIZES["width"], num_hidden_layers=layers, num_attention_heads=SIZES["heads"],
        intermediate_size=SIZES["hidden"], image_size=side, patch_size=SIZES["patch"],
        num_channels=channels, num_labels=CLASSES, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    found: nn.Module = ViTForImageClassification(settings)
    return found


def _optimisers(run: ImageRun, model: nn.Module) -> Iterator[tuple[torch.optim.Optimizer, float]]:
    """Optimisers and their first rates, which fall to zero linearly."""
    inside = ("query", "key", "value", "output", "first", "second")
    names = dict(model.named_parameters())
    taken = [n for n in names if n.startswith("blocks.") and n.rsplit(".", 1)[-1] in inside]
    maps = [names[n] for n in taken] if run.method == "taut" else []
    rest = [weight for name, weight in names.items() if not maps or name not in taken]
    if maps:
        yield torch.optim.Muon(maps, lr=0.05, momentum=0.9, weight_decay=0.0), 0.05
    rate = {"taut": 0.005, "torchlip": 0.001, "plain": 0.002}[run.method]
    yield torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.95), weight_decay=0.0), rate
