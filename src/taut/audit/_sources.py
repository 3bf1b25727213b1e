"""What the arguments of a model say: which axes hold samples and tokens, and which are padding."""

from __future__ import annotations

from collections.abc import Iterator
from inspect import signature
from typing import Any

import torch
from torch import nn

from taut.audit._origin import NOT_A_TOKEN, PADDED, TOKENS, Origin
from taut.audit._origins import Origins

STRANGERS = 1 << 32  # numbers of rows of inputs that are not one for each sample
_FIRST = ("input_ids", "inputs_embeds", "pixel_values", "input_features", "input_values")
_MASKS = {"attention_mask": "", "decoder_attention_mask": "decoder_"}  # 1 for real tokens
_PADDINGS = {"src_key_padding_mask": "src", "tgt_key_padding_mask": "tgt"}  # True for padding
_READS = ("input_ids", "inputs_embeds", "input_features", "input_values")


class Sources:
    """The inputs of a forward pass, and the masks of their padding."""

    def __init__(self, origins: Origins) -> None:
        self._origins = origins
        self._masks: dict[int, torch.Tensor] = {}  # True for real tokens, by the number of a source
        self.names: dict[int, str] = {}
        self.samples = 1

    def begin(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Say where the inputs of a model come from: themselves."""
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
            mask = _mask_of(name, tensors)
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
            feature = along(rest[1]) if len(rest) == 2 else zero
        elif rest:  # channels, then places
            feature = along(rest[0])
            for dim in rest[1:]:
                token = token * shape[dim] + along(dim)
            token = token + number
        self._origins.set(tensor, Origin(along(samples) + strange, token, feature))

    def real(self, sample: torch.Tensor, token: torch.Tensor) -> torch.Tensor | None:
        """Which places are no padding, from samples and tokens; None if all are real."""
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
        """The argument that a token belongs to, or nothing."""
        return self.names.get(token // TOKENS, "") if token > NOT_A_TOKEN else ""


def told_apart(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The same arguments, with a copy where one tensor is given twice, say to two towers."""
    seen: set[int] = set()
    found = {}
    for name, value in kwargs.items():
        if isinstance(value, torch.Tensor) and id(value) in seen:
            value = value.clone()
        seen.add(id(value))
        found[name] = value
    return found


def _mask_of(name: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """True for the real tokens of an argument, (samples, tokens), where another says so."""
    tensor = tensors[name]
    for mask_name, begin in _MASKS.items():
        mask = tensors.get(mask_name)
        reads = [begin + end for end in _READS] + ([] if begin else ["0", "x"])
        if mask is not None and name in reads and _fits(mask, tensor):
            return mask.bool()
    for mask_name, target in _PADDINGS.items():
        mask = tensors.get(mask_name)
        if mask is None or name != target or tensor.ndim != 3:
            continue
        if _fits(mask, tensor) or mask.shape == (tensor.shape[1], tensor.shape[0]):
            return ~mask if mask.dtype is torch.bool else mask == 0
    return None


def _fits(mask: torch.Tensor, tensor: torch.Tensor) -> bool:
    return mask.ndim == 2 and tensor.ndim >= 2 and mask.shape == tensor.shape[:2]


def _named(model: nn.Module, args: Any, kwargs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors among the arguments by their names, also those given by their place."""
    try:
        given = dict(signature(model.forward).bind_partial(*args, **kwargs).arguments)
    except (TypeError, ValueError):  # a forward method that cannot be looked into
        given = {str(place): value for place, value in enumerate(args)} | kwargs
    yield from _leaves("", given)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, dict) or hasattr(value, "items"):
        for key, part in value.items():
            yield from _leaves(str(key), part)
    elif isinstance(value, (list, tuple)):
        for place, part in enumerate(value):
            yield from _leaves(f"{name}.{place}" if name else str(place), part)


def batch_size(inputs: Any, model: nn.Module) -> int:
    """Samples of a batch: the first length of what is read, or the second, if tokens come first."""
    if isinstance(inputs, dict):
        named = [inputs[name] for name in _FIRST if name in inputs]
        values = [*named, *inputs.values()]
    else:
        values = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    for value in values:
        if isinstance(value, torch.Tensor) and value.ndim:
            return value.shape[1] if value.ndim == 3 and _tokens_first(model) else len(value)
    raise ValueError("a batch must hold a tensor")


def _tokens_first(model: nn.Module) -> bool:
    """Whether all attention is torch's own, with the tokens before the samples."""
    found = [m.batch_first for m in model.modules() if isinstance(m, nn.MultiheadAttention)]
    return bool(found) and not any(found)
