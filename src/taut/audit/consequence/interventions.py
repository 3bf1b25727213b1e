"""Disturb one head after the other for real, and measure how far the prediction moves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from taut._base.progress import shown
from taut.audit.consequence.noise import KINDS, NOISE, kl_column
from taut.audit.consequence.prediction import Prediction, divergence, prediction
from taut.models import (
    AttentionMode,
    DisturbedAttention,
    batch_size,
    call_model,
    draw_seed,
    unchanged,
    watched,
)

Place = tuple[str, int]


def interventions(
    model: nn.Module,
    batches: Iterable[Any],
    *,
    kinds: Sequence[str] = KINDS,
    noise: dict[str, float] | None = None,
    seed: int = 0,
    progress: bool = False,
) -> list[dict[str, Any]]:
    """Disturb each head of a model for real, and measure the KL divergence of its predictions.

    This is what ``consequence`` of an audit estimates, and how that estimate is checked. It takes
    a pass of the model for every head and kind of noise. Only fused attention
    (``scaled_dot_product_attention``) can be disturbed.

    Parameters
    ----------
    model
        A model that gives out logits. It is run in evaluation mode and left unchanged.
    batches
        Batches that the model is called with, as for :func:`taut.audit.run`.
    kinds
        What is disturbed: ``"scores"``, ``"keys"``, ``"values"``.
    noise
        Standard deviations by kind; by default those of the estimate.
    seed
        Seed of the noise.
    progress
        Whether to show a progress bar, if there is a terminal.

    Returns
    -------
    list of dict
        One row for each head: ``layer``, ``head``, and ``kl_scores``, ``kl_keys``, ``kl_values``,
        the mean KL divergence of a prediction from the undisturbed one, in nats.

    Examples
    --------
    >>> import torch
    >>> from taut import audit
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> rows = audit.interventions(layer, [torch.randn(3, 5, 8)], kinds=["scores"])
    >>> [(row["layer"], row["head"], row["kl_scores"] > 0) for row in rows]
    [('self_attn', 0, True), ('self_attn', 1, True)]
    """
    sizes = {**NOISE, **(noise or {})}
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"kinds must be among {', '.join(KINDS)}, got {unknown[0]!r}")
    plain: nn.Module = getattr(model, "_orig_mod", model)
    sums: dict[tuple[Place, int, str], float] = {}
    tokens = 0
    for number, inputs in enumerate(batches):
        with unchanged(model):
            clean = _CleanPass(plain, model, inputs)
            tokens += int(clean.prediction.real.sum())
            asked = [(p, h, k) for p, n in clean.heads.items() for h in range(n) for k in kinds]
            for key in shown(asked, len(asked), "heads", quiet=not progress):
                place, head, kind = key
                drawn = draw_seed(seed, number, f"{place} {head} {kind}")
                generator = torch.Generator().manual_seed(drawn)
                mode = DisturbedAttention(
                    plain, place, head, kind, sizes[kind], generator, clean.prediction.real
                )  # fmt: skip
                sums[key] = sums.get(key, 0.0) + clean.moved(mode)
    if not sums:
        raise ValueError("there is nothing to disturb: no fused attention was seen")
    rows: dict[tuple[Place, int], dict[str, Any]] = {}
    for (place, head, kind), total in sums.items():
        path, call = place
        name = path if call == 1 else f"{path} ({call})"
        row = rows.setdefault((place, head), {"layer": name, "head": head})
        row[kl_column(kind)] = total / max(tokens, 1)
    return list(rows.values())


class _HeadsSeen(AttentionMode):
    """Mode that notes every fused attention, with its number of heads."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.found: dict[Place, int] = {}

    def fused(self, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a fused attention and note it."""
        query = args[0] if args else kwargs["query"]
        self.found[self.place()] = query.shape[1] if query.ndim > 3 else self.heads
        return function(*args, **kwargs)


class _CleanPass:
    """A pass without noise: its prediction, its heads, and what its blocks gave out."""

    def __init__(self, plain: nn.Module, model: nn.Module, inputs: Any) -> None:
        self.plain, self.model, self.inputs = plain, model, inputs
        self.samples = batch_size(inputs, model)
        self.ended: dict[str, Any] = {}  # outputs of the blocks that ran once, by their paths
        again: set[str] = set()
        mode = _HeadsSeen(plain)
        with ExitStack() as stack:
            for path in _blocks(plain):
                hook = _keep(path, self.ended, again)
                stack.callback(plain.get_submodule(path).register_forward_hook(hook).remove)
            stack.enter_context(watched(plain, mode))
            self.prediction = self._predicted()
        self.heads = mode.found
        self.ended = {path: output for path, output in self.ended.items() if path not in again}

    def moved(self, mode: DisturbedAttention) -> float:
        """Sum over predictions of their KL divergence from those of the pass with a mode."""
        with self._skipped(mode.target[0]), watched(self.plain, mode):
            after = self._predicted()
        if not mode.met:
            raise RuntimeError(f"{mode.target[0]} was not run again")
        return divergence(self.prediction.rows, after.rows)

    def _predicted(self) -> Prediction:
        output = call_model(self.model, self.inputs)
        return prediction(output, self.inputs, self.samples)

    @contextmanager
    def _skipped(self, target: str) -> Iterator[None]:
        """Blocks of a list before the one that holds the target give out what they did before."""
        with ExitStack() as stack:
            for path, output in self.ended.items():
                series, _, index = path.rpartition(".")
                if not target.startswith(f"{series}."):
                    continue
                here = target[len(series) + 1 :].split(".")[0]
                before = here.isdigit() and int(index) < int(here)
                if before and _in_turn(self.ended, path, f"{series}.{here}"):
                    block = self.plain.get_submodule(path)
                    stack.enter_context(_replaced(block, _giving(output)))
            yield


@contextmanager
def _replaced(block: nn.Module, forward: Any) -> Iterator[None]:
    """Let a block run another function. What was set on the block itself, as by hooks, returns."""
    own = block.__dict__.get("forward")
    block.forward = forward
    try:
        yield
    finally:
        del block.forward
        if own is not None:
            block.forward = own


def _in_turn(ended: dict[str, Any], path: str, target: str) -> bool:
    """Whether a block ended before the one of the target did: blocks of a list run in turn."""
    order = list(ended)
    return target in ended and order.index(path) < order.index(target)


def _blocks(model: nn.Module) -> list[str]:
    """Paths of the blocks of all lists of modules that are not inside such a block themselves."""
    found: list[str] = []
    for path, module in model.named_modules():
        if isinstance(module, nn.ModuleList) and not any(path.startswith(f"{p}.") for p in found):
            found += [f"{path}.{index}" for index in range(len(module))]
    return found


def _keep(path: str, ended: dict[str, Any], again: set[str]) -> Any:
    def hook(module: nn.Module, args: Any, output: Any) -> None:
        again.update({path} if path in ended else ())
        ended[path] = output

    return hook


def _giving(output: Any) -> Any:
    return lambda *args, **kwargs: output
