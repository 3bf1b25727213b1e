"""What the rules for Hugging Face transformers share.

Classes are named, not imported: importing transformers takes seconds.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import nn

from taut.torch._mlp import affine
from taut.torch._region import Region
from taut.torch._rules import register
from taut.torch._run import Run


def named(family: str, *classes: str) -> tuple[str, ...]:
    """Full names of classes of one model family."""
    return tuple(f"transformers.models.{family}.modeling_{family}.{name}" for name in classes)


def sees(n: int, *, causal: bool, window: int | None = None) -> torch.Tensor | None:
    """Which keys a query sees by its position; None for all."""
    if not causal:
        return None
    place = torch.arange(n)
    seen = place[None, :] <= place[:, None]
    return seen if window is None else seen & (place[:, None] - place[None, :] < window)


def padded(
    seen: torch.Tensor | None, real: torch.Tensor | None, queries: int
) -> torch.Tensor | None:
    """The same without padding, given True for real tokens as (batch, keys)."""
    if real is None:
        return seen
    if real.ndim != 2:
        raise ValueError(
            f"mask must be (batch, tokens), True for real tokens; got {tuple(real.shape)}"
        )
    keys = real[:, None, :].expand(-1, queries, -1)
    return keys if seen is None else keys & seen


def call_block(module: nn.Module, x: Any, *, mask: Any = None, context: Any = None) -> Any:
    """A block on hidden states, with a mask of True and False."""
    extra = {} if context is None else {"encoder_hidden_states": context}
    fixed = None if mask is None else additive(mask, x)
    return module(x, attention_mask=fixed, **extra)


def additive(mask: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """0 where something is seen, the lowest number elsewhere, (batch, 1, queries, keys)."""
    seen = mask if mask.ndim == 4 else mask[None, None] if mask.ndim == 2 else mask[:, None]
    low = torch.finfo(x.dtype).min
    return torch.zeros(seen.shape, dtype=x.dtype, device=x.device).masked_fill(
        ~seen.to(x.device), low
    )


def call_text(module: nn.Module, x: Any, *, mask: Any = None) -> Any:
    """A model on word embeddings."""
    given = None if mask is None else mask.to(x.device).long()
    return module(inputs_embeds=x, attention_mask=given)


def config_of(module: nn.Module) -> Any:
    """The configuration of a module or of the first one inside it that has one."""
    for inner in module.modules():
        if getattr(inner, "config", None) is not None:
            return inner.config
    raise TypeError(f"{type(module).__name__} has no configuration to read")


def neighbour(module: nn.Module, name: str) -> Any:
    """Something that is defined next to the class of a module."""
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
def _conv1d(run: Run, module: Any, x: Region) -> Region:
    return run.linear(x, *affine(module))


_NORMS = [
    f"transformers.models.{family}.modeling_{family}.{name}"
    for family, name in (
        ("t5", "T5LayerNorm"),
        ("llama", "LlamaRMSNorm"),
        ("mistral", "MistralRMSNorm"),
        ("qwen2", "Qwen2RMSNorm"),
        ("qwen3", "Qwen3RMSNorm"),
    )
]


@register(*_NORMS)
def _rms_norm(run: Run, module: Any, x: Region) -> Region:
    return run.normalise(x, module.weight, None, module.variance_epsilon, centred=False)


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
def _activation(run: Run, module: Any, x: Region) -> Region:
    return run.activation(x, module)
