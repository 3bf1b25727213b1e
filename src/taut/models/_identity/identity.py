"""Identify a model by everything that its numbers depend on.

This keeps a record from being taken for that of another run. It covers weights and buffers, the
configuration, plain attributes of modules (flags, scales, modes, hooks), the code of all classes,
the tokenizer or preprocessing, the kind of device, versions, and taut's own code, but not the names
of folders and revisions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from taut.models._identity.source_files import is_own, source_files, versions
from taut.models._identity.tensor_digests import UnreadableError, WeightDigests, combined_digest
from taut.models._identity.value_digests import ValueDigests

# Keys of configurations and preprocessors that only say where they come from, or are shown.
_VOLATILE = {"_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "auto_map",
             "id2label", "label2id", "processor_class"}  # fmt: skip
_PRIVATE = ("_attn_implementation", "_experts_implementation")  # left out by to_dict
# Attributes of modules that are covered elsewhere, left behind by loading, or used for saving.
_ELSEWHERE = {"_parameters", "_buffers", "_modules", "generation_config", "name_or_path",
              "warnings_issued", "hf_device_map", "_hf_hook", "_old_forward",
              "_is_hf_initialized"}  # fmt: skip
_LIBRARIES = ("torch", "numpy", "numba", "transformers", "tokenizers", "PIL")


def identify(model: nn.Module, place: str = "", *, code: Sequence[str] = ()) -> dict[str, Any]:
    """Identify a model; ``unknown`` lists what could not be read.

    ``place`` is where it was loaded from; the code of a module:function counts too.
    ``code`` names the modules of taut that compute the numbers, besides those of taut.models.
    """
    named = dict(model.named_modules())
    unknown: list[str] = []
    attributes, functions = _attributes(named, unknown)
    roots = {kind.__module__ for module in named.values() for kind in type(module).__mro__}
    if ":" in place and not Path(place).exists():
        roots.add(place.partition(":")[0])
    files = source_files(roots | functions, is_own)
    state = model.state_dict()
    aside = {key: value for key, value in model.named_buffers() if key not in state}
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "weights": _tensors(model, state, unknown),
        "buffers": _tensors(model, aside, unknown),
        "configuration": _configuration(getattr(model, "config", None)),
        "attributes": attributes,
        "code": files.files,
        "devices": sorted({p.device.type for p in model.parameters()}),
        "versions": {**versions(_LIBRARIES), **files.versions},
        "taut": taut_digest(tuple(code)),
        "unknown": sorted(unknown),
    }


@cache
def taut_digest(code: tuple[str, ...]) -> str:
    """A digest of the code of taut that is used: these modules and all that they import."""
    found = source_files(("taut.models", *code), lambda name: name.startswith("taut."))
    return combined_digest(json.dumps(found.files).encode()).hex()


def plain(value: Any) -> Any:
    """Settings as JSON holds them, without those that cannot change a number."""
    if isinstance(value, dict):
        kept = {str(key): plain(item) for key, item in value.items() if key not in _VOLATILE}
        return dict(sorted(kept.items()))
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(str(item) for item in value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value) if isinstance(value, (torch.dtype, torch.device)) else type(value).__name__


def _configuration(config: Any) -> Any:
    """A configuration of Hugging Face; other configurations count as attributes."""
    if not callable(getattr(config, "to_dict", None)):
        return None
    found = plain(config.to_dict())
    return {**found, **{key: plain(getattr(config, key, None)) for key in _PRIVATE}}


def _attributes(named: dict[str, nn.Module], unknown: list[str]) -> tuple[dict[str, str], set[str]]:
    """A digest for each name of an attribute over all modules, and the modules of functions."""
    fold = ValueDigests({id(module): name for name, module in named.items()}, _configuration)
    found: dict[str, list[bytes]] = {}
    for name, module in named.items():
        for key, value in vars(module).items():
            if key in _ELSEWHERE:
                continue
            hooks = "_hooks" in key
            held = list(value.values()) if hooks else value  # their keys are the ids of handles
            if hooks and not held:
                continue
            try:
                digest = fold(held)
            except UnreadableError as error:
                unknown.append(f"{name}.{key}: {error}")
                continue
            found.setdefault(key, []).append(combined_digest(name.encode(), digest))
    digests = {key: combined_digest(*parts).hex()[:16] for key, parts in sorted(found.items())}
    return digests, fold.functions


def _tensors(model: nn.Module, state: dict[str, Any], unknown: list[str]) -> str | None:
    """One digest of a whole state; None if some of it cannot be read."""
    fold = ValueDigests({}, _configuration, strict=True)
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    read = WeightDigests(model, tensors)
    for key in state.keys() - tensors.keys():
        try:
            read.found[key] = fold(state[key])
        except UnreadableError as error:
            read.unknown[key] = str(error)
    unknown += [f"{key}: {why}" for key, why in read.unknown.items()]
    if read.unknown:
        return None
    parts = (combined_digest(key.encode(), read.found[key]) for key in sorted(read.found))
    return combined_digest(*parts).hex()
