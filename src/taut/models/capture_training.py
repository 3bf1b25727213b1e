"""Listen to attention modules in training passes, with gradients, and leave them as they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import nn

from taut.models.architectures.registry import number_of_heads
from taut.models.attention_calls import AttentionCalls, Note, Products, Scores

# Names under which attention reads another sequence, in forward methods.
_OTHERS = ("encoder_hidden_states", "key_value_states", "context", "memory", "key")


class AttentionListener:
    """Hands on the queries and keys, or the scores, of some modules until it is removed.

    Parameters
    ----------
    modules
        Attention modules by their paths, under which they are reported.
    note
        Called with each :class:`Products` or :class:`Scores`.
    active
        Asked at every call of a module; while it says no, nothing is reported.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], note: Note, active: Callable[[], bool]
    ) -> None:
        self._receivers = {id(m): _Receiver(note, active, path) for path, m in modules.items()}
        self._modules = dict(modules)
        for module in modules.values():
            forward = module.__dict__.get("forward")
            if not isinstance(forward, _ListenedForward):
                forward = module.forward = _ListenedForward(module)
            forward.receivers.append(self._receivers[id(module)])

    def remove(self) -> None:
        """Stop listening; the last listener leaves a module as it was."""
        for module in self._modules.values():
            forward = module.__dict__.get("forward")
            if not isinstance(forward, _ListenedForward):
                continue
            mine = self._receivers[id(module)]
            forward.receivers = [receiver for receiver in forward.receivers if receiver is not mine]
            if forward.receivers:
                continue
            if forward.before is None:
                del module.forward
            else:
                module.forward = forward.before
        self._modules.clear()


class _Receiver(NamedTuple):
    """Whom to tell, when, and under which path it knows the module."""

    note: Note
    active: Callable[[], bool]
    path: str


class _ListenedForward:
    """Stands in for the forward method of a module while somebody listens.

    torch.compile leaves it alone: attention that is listened to runs uncompiled. A copy of the
    module, or one loaded from a file, has its own forward method again.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.before = module.__dict__.get("forward")
        self.inner = module.forward
        self.receivers: list[_Receiver] = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the module's own forward pass."""
        told = [receiver for receiver in self.receivers if receiver.active()]
        if not told:
            return self.inner(*args, **kwargs)

        def note(seen: Products | Scores) -> None:
            for receiver in told:
                receiver.note(seen._replace(path=receiver.path))

        with AttentionCalls(number_of_heads(self.module) or 1, self._to_itself(args, kwargs), note):
            return self.inner(*args, **kwargs)

    def _to_itself(self, args: Any, kwargs: Any) -> bool:
        """Whether queries and keys come from one sequence, by the names of the arguments."""
        try:
            given = signature(self.inner).bind_partial(*args, **kwargs).arguments
        except (TypeError, ValueError):  # wrong arguments: the call itself says so
            return True
        first = next(iter(given.values()), None)
        return all(given.get(name) is None or given[name] is first for name in _OTHERS)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _own_forward(memo.get(id(self.module), self.module))

    def __reduce__(self) -> Any:
        return _own_forward, (self.module,)


def _own_forward(module: nn.Module) -> Any:
    return MethodType(type(module).forward, module)
