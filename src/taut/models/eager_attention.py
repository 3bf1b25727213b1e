"""Switch models of Hugging Face to the implementation of attention that shows its scores."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """Use the eager implementation, which puts soft caps, sinks and biases into the scores.

    Models of Hugging Face have a choice; the one they had is restored afterwards.
    """
    named = [m for m in model.modules() if hasattr(m, "set_attn_implementation")]
    configs = {
        id(m.config): (m.config, m.config._attn_implementation)
        for m in model.modules()
        if hasattr(getattr(m, "config", None), "_attn_implementation")
    }
    # taut's own attention functions are other maps, and show their scores anyway.
    own = [c for c, chosen in configs.values() if str(chosen).startswith("taut-")]
    try:
        for module in named:
            if not any(getattr(part, "config", None) in own for part in module.modules()):
                module.set_attn_implementation("eager")
        yield
    finally:
        for config, implementation in configs.values():
            config._attn_implementation = implementation
