"""Masks, calls and activations that the rules for Hugging Face transformers share.

Classes are named, not imported: importing transformers takes seconds.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from taut.models import visible_mask
from taut.networks.interpreter import Interpreter
from taut.networks.operations.linear import affine
from taut.networks.region import Region
from taut.networks.rule_register import register


def named(family: str, *classes: str) -> tuple[str, ...]:
    """Full names of classes of one model family."""
    return tuple(f"transformers.models.{family}.modeling_{family}.{name}" for name in classes)


def sees(n: int, *, causal: bool, window: int | None = None) -> torch.Tensor | None:
    """Which keys each query sees by its position; None if it sees all."""
    if not causal:
        return None
    place = torch.arange(n)
    seen = place[None, :] <= place[:, None]
    return seen if window is None else seen & (place[:, None] - place[None, :] < window)


def padded(
    seen: torch.Tensor | None, real: torch.Tensor | None, queries: int
) -> torch.Tensor | None:
    """The same without padding tokens; ``real`` is False for them, as (batch, keys)."""
    if real is None:
        return seen
    if real.ndim != 2:
        raise ValueError(
            f"mask must be (batch, tokens), False for padding tokens; got {tuple(real.shape)}"
        )
    keys = real[:, None, :].expand(-1, queries, -1)
    return keys if seen is None else keys & seen


def call_block(module: nn.Module, x: Any, *, mask: Any = None, context: Any = None) -> Any:
    """Call a block on hidden states; the mask is True where a key is seen."""
    extra = {} if context is None else {"encoder_hidden_states": context}
    fixed = None if mask is None else transformers_mask(mask, x)
    return module(x, attention_mask=fixed, **extra)


def transformers_mask(seen: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """0 where a key is seen, the lowest number elsewhere, as (batch, 1, queries, keys)."""
    if seen.ndim < 4:
        seen = seen[None, None] if seen.ndim == 2 else seen[:, None]
    return visible_mask(seen, x, hidden=torch.finfo(x.dtype).min)


def call_text(module: nn.Module, x: Any, *, mask: Any = None) -> Any:
    """Call a model on word embeddings."""
    given = None if mask is None else mask.to(x.device).long()
    return module(inputs_embeds=x, attention_mask=given)


def config_of(module: nn.Module) -> Any:
    """The configuration of a module, or of the first module inside it that has one."""
    for inner in module.modules():
        if getattr(inner, "config", None) is not None:
            return inner.config
    raise TypeError(f"{type(module).__name__} has no configuration to read")


def neighbour(module: nn.Module, name: str) -> Any:
    """An object that is defined in the same file as the class of a module."""
    return getattr(sys.modules[type(module).__module__], name)


def window_of(config: Any, index: int | None) -> int | None:
    """The sliding window of a layer, if it has one."""
    window = getattr(config, "sliding_window", None)
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and index is not None:
        return window if kinds[index] == "sliding_attention" else None
    if getattr(config, "use_sliding_window", window is not None) is False:
        return None
    return window


@register("transformers.pytorch_utils.Conv1D")
def _conv1d(run: Interpreter, module: Any, x: Region) -> Region:
    return run.linear(x, *affine(module))


@register(
    *(
        f"transformers.activations.{name}"
        for name in (
            "GELUActivation", "NewGELUActivation", "FastGELUActivation", "GELUTanh",
            "PytorchGELUTanh", "QuickGELUActivation", "SiLUActivation", "MishActivation",
            "AccurateGELUActivation", "LinearActivation",
        )
    )
)  # fmt: skip
def _activation(run: Interpreter, module: Any, x: Region) -> Region:
    return run.activation(x, module)
