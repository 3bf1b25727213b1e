"""The register of rules: which function bounds which module."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from taut.networks.inherited_methods import runs_code_of

Call = Callable[..., Any]


@dataclass(frozen=True)
class Rule:
    """How to bound a class of modules, and how to call them.

    Attributes
    ----------
    bound
        From the interpreter, the module and a region to the region of its outputs.
    own_call
        Calls a module on tokens (batch, tokens, width); None for modules that are called as
        ``module(x)`` and take vectors (batch, width) as well.
    """

    bound: Call
    own_call: Call | None = None

    def call(self, module: nn.Module, x: Any, **inputs: Any) -> Any:
        """What the module itself returns for vectors, tokens or images."""
        if self.own_call is None:
            if inputs:
                raise TypeError(f"{type(module).__name__} takes no {', '.join(inputs)}")
            return module(x)
        return self.own_call(module, x[:, None] if x.ndim == 2 else x, **inputs)


_RULES: dict[type | str, Rule] = {}


def register(*kinds: type | str, call: Call | None = None) -> Callable[[Call], Call]:
    """Say how a class of modules is bounded.

    Parameters
    ----------
    *kinds
        Classes of modules, or their full names where importing them would cost much.
    call
        How to call the module on tokens (batch, tokens, width); ``module(x)`` if not given. The
        output is compared with that of the rule, which exposes a rule that does not fit.

    Notes
    -----
    A rule takes ``(run, module, x)``, x being a :class:`Region`, and returns the region that the
    module makes of it, composed of what ``run`` offers: ``run(child, x)`` for modules with
    rules of their own, ``run.linear``, ``run.add`` and so on. A subclass has the rule of its parent
    only as long as it does not change ``forward`` or a method that ``forward`` calls.

    Examples
    --------
    >>> from torch import nn
    >>> class Twice(nn.Module):
    ...     def __init__(self, inner):
    ...         super().__init__()
    ...         self.inner = inner
    ...     def forward(self, x):
    ...         return x + self.inner(self.inner(x))
    >>> @register(Twice)
    ... def twice(run, module, x):
    ...     y = run(module.inner, run(module.inner, x, "first"), "second")
    ...     return run.add(x, y)
    """
    for kind in kinds:
        if not isinstance(kind, (type, str)):
            raise TypeError(f"register takes classes or their full names, got {kind!r}")

    def keep(bound: Call) -> Call:
        for kind in kinds:
            _RULES[kind] = Rule(bound, call)
        return bound

    return keep


def find(module: nn.Module) -> Rule | None:
    """The rule of a module, if there is one."""
    for kind in type(module).__mro__:
        rule = _RULES.get(kind) or _RULES.get(f"{kind.__module__}.{kind.__qualname__}")
        if rule is not None:
            return rule if runs_code_of(kind, module) else None
    return None


class MissingRuleError(TypeError):
    """Some modules have no rule; the message lists them and says how to register one."""

    def __init__(self, missing: list[tuple[str, nn.Module]]) -> None:
        self.missing = missing
        lines = [
            f"  {name or '(the module itself)'}: {_kind(m)}{_inside(m)}" for name, m in missing
        ]
        first = type(missing[0][1]).__name__
        super().__init__(
            "these modules have no rule, so nothing is known of how they change with their input:\n"
            + "\n".join(lines)
            + "\nRegister a rule for each class, composed of the operations in it:\n\n"
            f"  @taut.networks.register({first})\n"
            f"  def rule(run, module, x):\n"
            "      y = run(module.child, x, 'child')   # modules with rules of their own\n"
            "      return run.add(x, y)                # a residual\n\n"
            "See help(taut.networks.register)."
        )


def _kind(module: nn.Module) -> str:
    kind = type(module)
    where = getattr(sys.modules.get(kind.__module__), "__name__", kind.__module__)
    return f"{where}.{kind.__qualname__}"


def _inside(module: nn.Module) -> str:
    """Which of the modules inside have no rule either."""
    without = {type(m).__name__ for m in module.modules() if m is not module and find(m) is None}
    if not without:
        return ""
    return f" (inside it, {', '.join(sorted(without))} have none either)"
