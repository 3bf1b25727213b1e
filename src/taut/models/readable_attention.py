"""Switch models of Hugging Face to an implementation of attention whose scores can be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def readable_attention(model: Any) -> Iterator[None]:
    """Use fused attention that can be read, or the eager one where only that has all terms.

    Models of Hugging Face have a choice; the one they had is restored afterwards. Soft caps and
    sinks are in the scores of the eager implementation only.
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
        # Models inside others come last, so that each has its own choice in the end.
        for module in named:
            if not any(getattr(part, "config", None) in own for part in module.modules()):
                _switch(module)
        yield
    finally:
        for config, implementation in configs.values():
            config._attn_implementation = implementation


def _switch(module: Any) -> None:
    """Set ``sdpa`` if the model has it with all terms of its scores, else ``eager``."""
    if not getattr(module, "_can_set_attn_implementation", lambda: True)():
        return  # it was fixed when the model was made
    fused = getattr(module, "_supports_sdpa", False) and not _soft_capped(module.config)
    module.set_attn_implementation("sdpa" if fused else "eager")


def _soft_capped(config: Any) -> bool:
    """Whether scores of attention are bent by a soft cap, which fused attention leaves out."""
    return any(
        "softcap" in name and not name.startswith("final") and value is not None
        for name, value in vars(config).items()
    )
