"""What the numbers of an audit depend on, so that no record is taken for that of another run.

Whatever can change a number is in it: weights and buffers, the configuration, plain attributes of
modules (flags, scales, modes, hooks), the code of all classes, the tokenizer or preprocessing, the
kind of device, versions, and taut's own code. Names of folders and revisions are not.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from taut.audit._code import is_own, sources, versions
from taut.audit._digests import UnreadableError, Weights, mixed
from taut.audit._fold import Fold

if TYPE_CHECKING:
    from taut.audit._record import Record

# Of configurations and preprocessors: where they come from, and names that are only shown.
_VOLATILE = {"_name_or_path", "name_or_path", "_commit_hash", "transformers_version", "auto_map",
             "id2label", "label2id", "processor_class"}  # fmt: skip
_PRIVATE = ("_attn_implementation", "_experts_implementation")  # to_dict leaves them out
# Of modules: what is looked at elsewhere, what loading leaves behind, and what only writing uses.
_ELSEWHERE = {"_parameters", "_buffers", "_modules", "generation_config", "name_or_path",
              "warnings_issued", "hf_device_map", "_hf_hook", "_old_forward",
              "_is_hf_initialized"}  # fmt: skip
_LIBRARIES = ("torch", "numpy", "numba", "transformers", "tokenizers", "PIL")


def identify(model: nn.Module, place: str = "") -> dict[str, Any]:
    """What identifies a model; ``unknown`` lists what could not be read.

    ``place`` is where it was loaded from: its function is code too if it is module:function.
    """
    named = dict(model.named_modules())
    unknown: list[str] = []
    attributes, functions = _attributes(named, unknown)
    roots = {kind.__module__ for module in named.values() for kind in type(module).__mro__}
    if ":" in place and not Path(place).exists():
        roots.add(place.partition(":")[0])
    code = sources(roots | functions, is_own)
    state = model.state_dict()
    aside = {key: value for key, value in model.named_buffers() if key not in state}
    return {
        "class": f"{type(model).__module__}.{type(model).__qualname__}",
        "weights": _tensors(model, state, unknown),
        "buffers": _tensors(model, aside, unknown),
        "configuration": _configuration(getattr(model, "config", None)),
        "attributes": attributes,
        "code": code.files,
        "devices": sorted({p.device.type for p in model.parameters()}),
        "versions": {**versions(_LIBRARIES), **code.versions},
        "taut": _taut(),
        "unknown": sorted(unknown),
    }


@cache
def _taut() -> str:
    """A digest of the code of taut that an audit runs."""
    roots = ("taut.audit._run", "taut.audit._batches")
    found = sources(roots, lambda name: name.startswith("taut."))
    return mixed(json.dumps(found.files).encode()).hex()


def told(record: Record) -> dict[str, Any]:
    """All that tells one run from another, in the words of JSON; data may be moved."""
    data = {key: value for key, value in record.data.items() if key not in ("source", "notes")}
    name = record.model.get("name")
    return {"name": name, **record.identity, "data": data, "settings": record.settings}


def mark(record: Record) -> str:
    """Eight bytes of all of it, for the name of a file."""
    return mixed(json.dumps(told(record), sort_keys=True).encode()).hex()[:16]


def differences(one: Record, other: Record) -> list[str]:
    """In what two runs differ, by name: ``configuration.scale_attn_weights: true, false``."""
    return list(_different(told(one), told(other), ""))


def _different(one: Any, other: Any, name: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for key in sorted({*one, *other}):
            yield from _different(one.get(key), other.get(key), f"{name}.{key}" if name else key)
        return
    a, b = (json.dumps(value) for value in (one, other))
    if a != b:
        yield f"{name}: {a}, {b}" if max(len(a), len(b)) < 34 else name  # no digests


def plain(value: Any) -> Any:
    """Settings in the words of JSON, without what does not change a number."""
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
    """A configuration of Hugging Face; others are attributes like all."""
    if not callable(getattr(config, "to_dict", None)):
        return None
    found = plain(config.to_dict())
    return {**found, **{key: plain(getattr(config, key, None)) for key in _PRIVATE}}


def _attributes(named: dict[str, nn.Module], unknown: list[str]) -> tuple[dict[str, str], set[str]]:
    """A digest for each name of attributes, over all modules; and the modules of functions."""
    fold = Fold({id(module): name for name, module in named.items()}, _configuration)
    found: dict[str, list[bytes]] = {}
    for name, module in named.items():
        for key, value in vars(module).items():
            if key in _ELSEWHERE:
                continue
            hooks = "_hooks" in key
            held = list(value.values()) if hooks else value  # their keys are numbers of handles
            if hooks and not held:
                continue
            try:
                digest = fold(held)
            except UnreadableError as error:
                unknown.append(f"{name}.{key}: {error}")
                continue
            found.setdefault(key, []).append(mixed(name.encode(), digest))
    return {key: mixed(*parts).hex()[:16] for key, parts in sorted(found.items())}, fold.functions


def _tensors(model: nn.Module, state: dict[str, Any], unknown: list[str]) -> str | None:
    """One digest of all of a state; None if some of it cannot be read."""
    fold = Fold({}, _configuration, strict=True)
    tensors = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
    read = Weights(model, tensors)
    for key in state.keys() - tensors.keys():
        try:
            read.found[key] = fold(state[key])
        except UnreadableError as error:
            read.unknown[key] = str(error)
    unknown += [f"{key}: {why}" for key, why in read.unknown.items()]
    if read.unknown:
        return None
    return mixed(*(mixed(key.encode(), read.found[key]) for key in sorted(read.found))).hex()
