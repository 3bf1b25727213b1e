"""Callbacks for trainers, imported on first use: a monitor, and constraints."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from taut.control.callbacks.huggingface import HuggingFaceConstraints, HuggingFaceMonitor
    from taut.control.callbacks.lightning import LightningConstraints, LightningMonitor

__all__ = [
    "HuggingFaceConstraints",
    "HuggingFaceMonitor",
    "LightningConstraints",
    "LightningMonitor",
]


def __getattr__(name: str) -> Any:
    """Import a callback on first use: its trainer takes seconds to import, and may be missing."""
    if name not in __all__:
        raise AttributeError(f"module 'taut.control.callbacks' has no attribute {name!r}")
    from importlib import import_module

    trainer = "huggingface" if name.startswith("HuggingFace") else "lightning"
    return getattr(import_module(f"taut.control.callbacks.{trainer}"), name)
