"""Question: a module, a domain, and what else goes into it; asked of a rule or of the module."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

import taut.networks.rules  # noqa: F401  (enters all rules in the register)
from taut._base.domain import At, Ball, Domain, Everywhere
from taut.networks.domain_points import NetworkDomain, check_domain, points_of, region_of
from taut.networks.execution import runs_in, workplace
from taut.networks.interpreter import Interpreter
from taut.networks.module_checks import check_module
from taut.networks.region import Region
from taut.networks.rule_register import MissingRuleError, Rule, find

SHORT = 32  # tokens of the random input that rules are checked with


@dataclass(frozen=True)
class Question:
    """What :func:`certify` was asked."""

    module: nn.Module
    rule: Rule
    domain: NetworkDomain
    context: NetworkDomain | torch.Tensor | None
    mask: torch.Tensor | None
    context_mask: torch.Tensor | None
    norm: Literal["l2", "token"]
    seed: int

    def __post_init__(self) -> None:
        if not isinstance(self.context, (At, Ball, Everywhere, torch.Tensor, type(None))):
            raise TypeError(
                f"context must be a domain or a tensor, got {type(self.context).__name__}"
            )
        for domain in (self.domain, self.context):
            if isinstance(domain, (At, Ball, Everywhere)):
                check_domain(domain)
        _accepted(self.module, self.rule, {*self.masks, *self._contexts})
        for name in ("mask", "context_mask"):
            value = getattr(self, name)
            if value is not None and not (
                isinstance(value, torch.Tensor) and value.dtype == torch.bool
            ):
                raise TypeError(f"{name} must be a tensor of bool, True for what is seen")
        if isinstance(self.context, (Ball, Everywhere)) == isinstance(self.domain, At) and (
            self.context is not None
        ):
            raise ValueError(
                "domain and context must both be given inputs, or both sets of bounded tokens"
            )
        if isinstance(self.domain, At) and self.context is not None:
            context = self.context.inputs if isinstance(self.context, At) else self.context
            assert isinstance(context, torch.Tensor)
            many = len(context)
            if many != len(self.domain.inputs):
                raise ValueError(
                    f"domain and context must be of one batch, got {len(self.domain.inputs)} and "
                    f"{many}"
                )

    @property
    def _contexts(self) -> tuple[str, ...]:
        return () if self.context is None else ("context",)

    @property
    def where(self) -> Domain:
        """The domain, with what is known of the context."""
        if self.context is None:
            return self.domain
        fixed = isinstance(self.context, torch.Tensor)
        return self.domain.given(f"context {'fixed' if fixed else self.context}")

    @property
    def masks(self) -> dict[str, torch.Tensor]:
        """The masks that were given."""
        given = {"mask": self.mask, "context_mask": self.context_mask}
        return {name: value for name, value in given.items() if value is not None}

    def answer(self, run: Interpreter) -> Region:
        """What the rules make of the domain."""
        x = region_of(self.domain, run.device)
        inputs: dict[str, Any] = dict(self.masks)
        if self.context is not None:
            inputs["context"] = region_of(self.context, run.device)
        return run(self.module, x, type(self.module).__name__, **inputs)

    def points(self, count: int) -> list[torch.Tensor]:
        """Inputs of the module inside the domain: tokens, and the context if there is one."""
        dtype, device = runs_in(self.module, self.domain)
        source = torch.Generator().manual_seed(self.seed)
        found = [points_of(self.domain, count, source)]
        if self.context is not None:
            found.append(points_of(self.context, count, source))
        return [point.to(device, dtype) for point in found]

    @property
    def moving(self) -> int:
        """How many of the points move: not a context that was given as a tensor."""
        return 1 if self.context is None or isinstance(self.context, torch.Tensor) else 2

    def at(self, x: torch.Tensor, context: torch.Tensor | None = None) -> Question:
        """The same question at other inputs."""
        return replace(self, domain=At(x), context=self.context if context is None else context)

    def short(self) -> Question:
        """The same question for one short random input, of tokens about as long as those given."""
        assert isinstance(self.domain, At)
        x = self.domain.inputs
        size = x[:1] if x.ndim > 3 else x[:1, :SHORT] if x.ndim == 3 else x[:1]
        source = torch.Generator().manual_seed(self.seed)
        noise = torch.randn(size.shape, generator=source, dtype=torch.float64)
        scale = float(x.double().square().mean().sqrt()) or 1.0
        return self.at((noise * scale).to(x))

    def call(self, x: torch.Tensor, context: torch.Tensor | None = None) -> torch.Tensor:
        """The module itself."""
        inputs: dict[str, Any] = dict(self.masks)
        if context is not None:
            inputs["context"] = context
        return output_of(self.rule.call(self.module, x, **inputs))


def ask(
    module: nn.Module,
    domain: NetworkDomain,
    context: NetworkDomain | torch.Tensor | None,
    mask: torch.Tensor | None,
    context_mask: torch.Tensor | None,
    norm: Literal["l2", "token"],
    seed: int,
) -> tuple[Question, torch.device]:
    """A question that can be answered, and where to do so."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module must be a torch.nn.Module, got {type(module).__name__}")
    rule = find(module)
    if rule is None:
        raise MissingRuleError([("", module)])
    question = Question(module, rule, domain, context, mask, context_mask, norm, seed)
    check_module(module)
    return question, workplace(module)


def output_of(found: Any) -> torch.Tensor:
    """The tensor in what a module returns."""
    for name in ("logits", "last_hidden_state"):
        if hasattr(found, name):
            found = getattr(found, name)
    if isinstance(found, tuple):
        found = found[0]
    if not isinstance(found, torch.Tensor):
        raise TypeError(
            f"the module returns {type(found).__name__}, in which no output tensor was found"
        )
    return found


def _accepted(module: nn.Module, rule: Rule, given: set[str]) -> None:
    """Refuse inputs that a rule does not know, and ask for those that it needs."""
    parameters = list(inspect.signature(rule.bound).parameters.values())[3:]
    name = type(module).__name__
    known = {p.name for p in parameters}
    if given - known and not any(p.kind is p.VAR_KEYWORD for p in parameters):
        raise TypeError(f"{name} takes no {' or '.join(sorted(given - known))}")
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and p.default is p.empty and p.name not in given:
            raise TypeError(f"{name} needs {p.name}= as well")
