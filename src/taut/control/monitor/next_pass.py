"""Do something before the next training forward pass of a module, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Action = Callable[[tuple[Any, ...], dict[str, Any]], bool]


def outer(model: nn.Module) -> nn.Module:
    """The module whose calls are seen: the one inside DDP, which moves inputs to their device."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def inner(model: nn.Module) -> nn.Module:
    """The model as it was written, without wrappers of torch.compile and DDP."""
    found = getattr(outer(model), "_orig_mod", outer(model))
    return outer(found)


class NextPass:
    """Calls an action before the next training pass of a module; in between, nothing is installed.

    Parameters
    ----------
    module
        The module. Passes without gradients, as in evaluation, do not count.
    action
        Called with the arguments of the pass before it runs. If it returns False, it is called
        again at the next pass.
    """

    def __init__(self, module: nn.Module, action: Action) -> None:
        self._module, self._action = module, action
        self._remove: Callable[[], None] | None = None
        self.met = True  # whether any pass came since the last wait

    def wait(self) -> None:
        """Wait for the next pass."""
        self.met = False
        if self._remove is not None:
            return
        compiled = self._module._compiled_call_impl
        if compiled is None:
            hook = _PassHook(self._before)  # first, as other hooks may change the arguments
            handle = self._module.register_forward_pre_hook(hook, prepend=True, with_kwargs=True)
            self._remove = handle.remove
        else:  # after module.compile(), hooks are parts of what is compiled

            def call(*args: Any, **kwargs: Any) -> Any:
                self._before(self._module, args, kwargs)
                return compiled(*args, **kwargs)

            def restore() -> None:
                self._module._compiled_call_impl = compiled

            self._module._compiled_call_impl = call
            self._remove = restore

    def stop(self) -> None:
        """Stop waiting."""
        if self._remove is not None:
            self._remove()
            self._remove = None

    def _before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        # Where the call is a part of a larger compiled function, nothing may be traced into it.
        if torch.compiler.is_compiling() or not torch.is_grad_enabled():
            return
        self.stop()  # before anything can fail
        if not self._action(args, kwargs):
            self.wait()
        self.met = True


class _PassHook:
    """A hook that does nothing in copies of the module, such as averages of its weights."""

    def __init__(self, before: Callable[..., None] | None = None) -> None:
        self._before = before

    def __call__(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if self._before is not None:
            self._before(module, args, kwargs)

    def __reduce__(self) -> tuple[type[_PassHook], tuple[()]]:
        return _PassHook, ()
