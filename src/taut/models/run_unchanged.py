"""Run a model and leave it unchanged.

A forward pass changes more than its result: the random numbers that dropout draws, buffers such as
the statistics of batch norm, attributes of modules such as counters, and the casts of weights that
autocast keeps. In older versions of PyTorch, casts made without gradients even cut the gradients of
the next pass (https://github.com/pytorch/pytorch/issues/112583).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map_only


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; everything is put back afterwards, even after an error.

    Parameters are not copied: a model that writes into them in its forward pass does so here too.
    """
    with ExitStack() as stack:
        _keep_random_numbers(model, stack)
        _keep_modules(model, stack)
        stack.callback(torch.clear_autocast_cache)
        stack.enter_context(torch.no_grad())
        for module in model.modules():
            module.training = False  # .eval() may be overridden, and do more
        yield


def copied_tensors(values: Any) -> Any:
    """The same lists, tuples and dicts with copies of their tensors; a shared one stays shared."""
    known: dict[int, torch.Tensor] = {}

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        return known.setdefault(id(tensor), tensor.detach().clone())

    return tree_map_only(torch.Tensor, copy, values)


def has_lazy_parameters(model: nn.Module) -> bool:
    """Whether parameters get their shape in the first pass, as those of ``torch.nn.LazyLinear``."""
    return any(nn.parameter.is_lazy(weight) for weight in model.parameters())


def _keep_random_numbers(model: nn.Module, stack: ExitStack) -> None:
    stack.callback(random.setstate, random.getstate())
    stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002  what models may use
    devices: dict[str, set[torch.device]] = {"cpu": set()}
    for tensor in (*model.parameters(), *model.buffers()):
        devices.setdefault(tensor.device.type, set()).add(tensor.device)
    for kind, found in devices.items():
        if kind == "cpu":
            stack.enter_context(torch.random.fork_rng(devices=[]))
        elif kind == "mps":  # there is one, and it has no number
            stack.callback(torch.mps.set_rng_state, torch.mps.get_rng_state())
        elif kind != "meta":
            places = sorted(device.index or 0 for device in found)
            stack.enter_context(torch.random.fork_rng(devices=places, device_type=kind))


def _keep_modules(model: nn.Module, stack: ExitStack) -> None:
    """Swap buffers for copies, so that the real ones are not even touched."""
    known: dict[int, torch.Tensor] = {}  # a buffer that two modules share stays shared
    for module in model.modules():
        stack.callback(_put_back, vars(module), dict(vars(module)))
        for name, value in vars(module).items():
            if not name.startswith("_"):  # lists of losses, counts and the like
                _keep_contents(value, stack)
        buffers = module._buffers
        stack.callback(_put_back, buffers, dict(buffers))
        for name, buffer in buffers.items():
            if buffer is not None:
                buffers[name] = known.setdefault(id(buffer), buffer.detach().clone())


def _keep_contents(value: Any, stack: ExitStack) -> None:
    """Keep what a pass may change in place, without what is inside of it."""
    if isinstance(value, torch.Generator):
        stack.callback(value.set_state, value.get_state())
    elif isinstance(value, list):
        stack.callback(value.__setitem__, slice(None), list(value))
    elif isinstance(value, dict):
        stack.callback(_refill, value, dict(value))


def _refill(now: dict[Any, Any], before: dict[Any, Any]) -> None:
    if now.keys() != before.keys() or any(now[name] is not value for name, value in before.items()):
        now.clear()
        now.update(before)


def _put_back(now: dict[str, Any], before: dict[str, Any]) -> None:
    """Put back only what differs, as compiled models watch these dicts."""
    for name in [name for name in now if name not in before]:
        del now[name]
    for name, value in before.items():
        if name not in now or now[name] is not value:
            now[name] = value
