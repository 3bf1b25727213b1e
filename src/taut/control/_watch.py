"""Hand on what attention modules see, whoever listens, and leave them as they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import signature
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import nn

from taut.audit._layout import heads_of
from taut.control._seen import Note, Noticed, Products, Scores

# Names of what attention to another sequence reads from it, in forward methods.
_OTHERS = ("encoder_hidden_states", "key_value_states", "context", "memory", "key")


class Listener(NamedTuple):
    """Who is told, and when; and under which path it knows the module."""

    note: Note
    active: Callable[[], bool]
    path: str


class _Watched:
    """Stands for the forward method of a module while somebody listens.

    torch.compile leaves it alone: attention that is watched runs as it is written. A copy of the
    module, or one from a file, is not watched.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.before = module.__dict__.get("forward")
        self.inner = module.forward
        self.listeners: list[Listener] = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward pass."""
        told = [listener for listener in self.listeners if listener.active()]
        if not told:
            return self.inner(*args, **kwargs)

        def note(seen: Products | Scores) -> None:
            for listener in told:
                listener.note(seen._replace(path=listener.path))

        with Noticed(heads_of(self.module) or 1, self._to_itself(args, kwargs), note):
            return self.inner(*args, **kwargs)

    def _to_itself(self, args: Any, kwargs: Any) -> bool:
        """Whether queries and keys are made of one sequence, by the names of the arguments."""
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


class Watch:
    """Handle of a listener on several modules."""

    def __init__(
        self, modules: Mapping[str, nn.Module], note: Note, active: Callable[[], bool]
    ) -> None:
        self._listeners = {id(m): Listener(note, active, path) for path, m in modules.items()}
        self._modules = dict(modules)
        for module in modules.values():
            watched = module.__dict__.get("forward")
            if not isinstance(watched, _Watched):
                watched = module.forward = _Watched(module)
            watched.listeners.append(self._listeners[id(module)])

    def remove(self) -> None:
        """Listen no more; the last one leaves a module as it was."""
        for module in self._modules.values():
            watched = module.__dict__.get("forward")
            if not isinstance(watched, _Watched):
                continue
            mine = self._listeners[id(module)]
            watched.listeners = [x for x in watched.listeners if x is not mine]
            if watched.listeners:
                continue
            if watched.before is None:
                del module.forward
            else:
                module.forward = watched.before
        self._modules.clear()
