"""Hand on what attention modules see, whoever listens, and leave them as they were."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, NamedTuple

import torch
from torch import nn

from taut.audit._layout import heads_of
from taut.control._seen import Note, Noticed, Products, Scores


class Listener(NamedTuple):
    """Who is told, and when."""

    note: Note
    active: Callable[[], bool]


class _Watched:
    """Stands for the forward method of a module while somebody listens.

    torch.compile leaves it alone: attention that is watched runs as it is written. A copy of the
    module, or one from a file, is not watched.
    """

    def __init__(self, module: nn.Module, path: str) -> None:
        self.module, self.path = module, path
        self.before = module.__dict__.get("forward")
        self.inner = module.forward
        self.listeners: list[Listener] = []

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own forward pass."""
        told = [listener.note for listener in self.listeners if listener.active()]
        if not told:
            return self.inner(*args, **kwargs)

        def note(seen: Products | Scores) -> None:
            for tell in told:
                tell(seen)

        with Noticed(self.path, heads_of(self.module) or 1, note):
            return self.inner(*args, **kwargs)

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
        self._listener, self._modules = Listener(note, active), dict(modules)
        for path, module in modules.items():
            watched = module.__dict__.get("forward")
            if not isinstance(watched, _Watched):
                watched = module.forward = _Watched(module, path)
            watched.listeners.append(self._listener)

    def remove(self) -> None:
        """Listen no more; the last one leaves a module as it was."""
        for module in self._modules.values():
            watched = module.__dict__.get("forward")
            if not isinstance(watched, _Watched):
                continue
            watched.listeners = [x for x in watched.listeners if x is not self._listener]
            if watched.listeners:
                continue
            if watched.before is None:
                del module.forward
            else:
                module.forward = watched.before
        self._modules.clear()
