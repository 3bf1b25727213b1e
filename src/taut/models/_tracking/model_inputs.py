"""The arguments of a model: which axes hold samples and tokens, and which tokens are padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from inspect import signature
from typing import Any

import torch
from torch import nn

from taut.models._tracking.origin import GIVEN, NOT_A_TOKEN, PADDED, TOKENS, Origin
from taut.models._tracking.origin_tracker import OriginTracker
from taut.models._tracking.padding import real_tokens
from taut.models._tracking.storages import storage

STRANGERS = 1 << 32  # numbers of rows that do not belong to one sample each start here
_FIRST = ("input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values")


class ModelInputs:
    """The inputs of a forward pass, and the masks of their padding."""

    def __init__(self, origins: OriginTracker) -> None:
        self._origins = origins
        self._masks: dict[int, torch.Tensor] = {}  # True for real tokens, by the number of a source
        self.names: dict[int, str] = {}
        self.samples = 1

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Give every entry of the inputs its origin: its own sample, token and feature."""
        given = list(_named(model, args, kwargs))
        tensors = dict(given)
        if not any(tensor.ndim for tensor in tensors.values()):
            return
        first = 1 if _tokens_first(model) else 0
        self.samples = batch_size(tensors, model)
        self._masks, self.names = {}, {}
        for name, tensor in given:
            if tensor.ndim and tensor.layout is torch.strided and not tensor.is_nested:
                self._label(name, tensor, first if tensor.ndim == 3 else 0)
        for number, name in self.names.items():
            mask = real_tokens(name, tensors)
            if mask is not None:
                self._masks[number] = mask

    def _label(self, name: str, tensor: torch.Tensor, samples: int) -> None:
        number = self._origins.source()
        self.names[number // TOKENS] = name
        shape, device = tensor.shape, tensor.device

        def along(dim: int) -> torch.Tensor:
            places = [1] * tensor.ndim
            places[dim] = -1
            return torch.arange(shape[dim], device=device).reshape(places).expand(shape)

        strange = 0 if shape[samples] == self.samples else STRANGERS
        rest = [dim for dim in range(tensor.ndim) if dim != samples]
        zero = torch.zeros((), dtype=torch.int64, device=device).expand(shape)
        token, feature = zero + number if not rest else zero, zero
        if tensor.ndim == 3 and not tensor.is_floating_point():
            rest = rest[:1]
        if len(rest) <= 2 and rest:
            token = number + along(rest[0])
            wide = tensor.is_floating_point()  # then entries may be tokens or features
            feature = along(rest[1]) if len(rest) == 2 else along(rest[0]) if wide else zero
        elif rest:  # channels, then places
            feature = along(rest[0])
            for dim in rest[1:]:
                token = token * shape[dim] + along(dim)
            token = token + number
        self._origins.set(tensor, Origin(along(samples) + strange, token, feature + GIVEN))

    def real(self, sample: torch.Tensor, token: torch.Tensor) -> torch.Tensor | None:
        """Which places are not padding, by their samples and tokens; None if none is."""
        found = token != PADDED
        for number, mask in self._masks.items():
            here = (token // TOKENS == number) & (sample >= 0) & (sample < len(mask))
            if not bool(here.any()):
                continue
            mask = mask.to(token.device)
            place = torch.where(here, token % TOKENS, 0).clamp(max=mask.shape[1] - 1)
            line = torch.where(here, sample, 0)
            found = found & (~here | mask[line, place])
        return None if bool(found.all()) else found

    def name(self, token: int) -> str:
        """The argument that a token belongs to; empty if it belongs to none."""
        return self.names.get(token // TOKENS, "") if token > NOT_A_TOKEN else ""


def told_apart(given: Any, before: Any = ()) -> Any:
    """The same arguments, with a copy where one tensor is passed twice, say to two towers."""
    seen = {_place(value) for value in before if isinstance(value, torch.Tensor)}

    def apart(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return value
        if _place(value) in seen:
            value = value.clone()
        seen.add(_place(value))
        return value

    if isinstance(given, dict):
        return {name: apart(value) for name, value in given.items()}
    return tuple(apart(value) for value in given)


def _place(tensor: torch.Tensor) -> tuple[int, Any, Any]:
    return storage(tensor), tuple(tensor.shape), tensor.storage_offset()


def _named(model: nn.Module, args: Any, kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors among the arguments by their names, also those given by their place."""
    inner = getattr(model, "module", model)  # inside DataParallel and the like
    forward = inner.forward if isinstance(inner, nn.Module) else model.forward
    try:
        given = dict(signature(forward).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # a forward method that cannot be looked into
        given = {str(place): value for place, value in enumerate(args)} | kwargs
    yield from leaves(given)


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """All tensors in lists, dicts and objects of them, by their names."""
    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Mapping):
        parts = [(str(key), part) for key, part in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(str(place), part) for place, part in enumerate(value)]
    else:
        return
    for key, part in parts:
        yield from leaves(part, f"{name}.{key}" if name else key)


def batch_size(inputs: Any, model: nn.Module) -> int:
    """Number of samples: the first length of the data, or the second if tokens come first."""
    found = dict(leaves(inputs))
    named = [tensor for name, tensor in found.items() if name.rpartition(".")[2] in _FIRST]
    # Scalars such as a time step may come before the data.
    values = [*named, *(t for t in found.values() if t.ndim > 1), *found.values()]
    for value in values:
        if value.ndim:
            return value.shape[1] if value.ndim == 3 and _tokens_first(model) else len(value)
    raise ValueError("a batch must hold a tensor")


def _tokens_first(model: nn.Module) -> bool:
    """Whether a module is one of torch's own, with the tokens before the samples."""
    if not type(model).__module__.startswith("torch.nn"):
        return False
    found = [m.batch_first for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    return bool(found) and not any(found)
