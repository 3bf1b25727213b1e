"""Which attention function of taut.control a module of transformers calls, and with what options.

The functions are entries of transformers' AttentionInterface; their options are kept in the
configuration.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

Kind = Literal["cosine", "l2", "soft-cap"]


class ControlledAttention(NamedTuple):
    """What takes the place of dot-product attention.

    ``options`` are nu, scale and epsilon of cosine attention, and the limit of a soft cap.
    """

    kind: Kind
    options: dict[str, float]


def controlled_name(kind: Kind) -> str:
    """The name of the function in the AttentionInterface."""
    return f"taut-{kind}"


def controlled_attention(module: Any) -> ControlledAttention | None:
    """The attention function that was put into a module of transformers; None for its own."""
    config: Any = getattr(module, "config", None)
    chosen = getattr(config, "_attn_implementation", None)
    if chosen == controlled_name("soft-cap"):
        return ControlledAttention("soft-cap", {"limit": float(config.taut_soft_cap)})
    if chosen == controlled_name("l2"):
        return ControlledAttention("l2", {})
    if chosen == controlled_name("cosine"):
        kept = config.taut_attention
        return ControlledAttention(
            "cosine", {name: float(kept[name]) for name in ("nu", "scale", "epsilon")}
        )
    return None
