"""Question: a module, a domain, and what else goes into it; asked of a rule or of the module."""

from __future__ import annotations

import copy
import inspect
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from taut.torch._domain import At, Ball, Domain, Everywhere
from taut.torch._region import Region, everything, start
from taut.torch._rules import MissingRuleError, Rule, find, plain_call
from taut.torch._run import Run
from taut.torch._weights import runs_in, workplace

SHORT = 32  # tokens of the random input that rules are checked with
LONG = 256  # tokens, beyond which that is the only check


@dataclass(frozen=True)
class Question:
    """What :func:`certify` was asked."""

    module: nn.Module
    rule: Rule
    domain: Domain
    context: Domain | torch.Tensor | None
    mask: torch.Tensor | None
    context_mask: torch.Tensor | None
    norm: Literal["l2", "token"]
    seed: int

    def __post_init__(self) -> None:
        if not isinstance(self.context, (At, Ball, Everywhere, torch.Tensor, type(None))):
            raise TypeError(
                f"context must be a domain or a tensor, got {type(self.context).__name__}"
            )
        _accepted(self.module, self.rule, {*self.masks, *self._contexts})
        for name in ("mask", "context_mask"):
            value = getattr(self, name)
            if value is not None and not (
                isinstance(value, torch.Tensor) and value.dtype == torch.bool
            ):
                raise TypeError(f"{name} must be a tensor of bool, True where something is seen")
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
    def where(self) -> str:
        """The domain in words."""
        if self.context is None:
            return str(self.domain)
        fixed = isinstance(self.context, torch.Tensor)
        return f"{self.domain}, context {'fixed' if fixed else str(self.context)}"

    @property
    def masks(self) -> dict[str, torch.Tensor]:
        """The masks that were given."""
        given = {"mask": self.mask, "context_mask": self.context_mask}
        return {name: value for name, value in given.items() if value is not None}

    def answer(self, run: Run) -> Region:
        """What the rules make of the domain."""
        x = _region(self.domain, run.device)
        inputs: dict[str, Any] = dict(self.masks)
        if self.context is not None:
            inputs["context"] = _region(self.context, run.device)
        return run(self.module, x, type(self.module).__name__, **inputs)

    def points(self, count: int) -> list[torch.Tensor]:
        """Inputs of the module inside the domain: tokens, and the context if there is one."""
        dtype, device = runs_in(self.module, self.domain)
        source = torch.Generator().manual_seed(self.seed)
        found = [_points(self.domain, count, source)]
        if self.context is not None:
            found.append(_points(self.context, count, source))
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
        if x.ndim == 2 and self.rule.call is not plain_call:
            x = x[:, None]
        return output_of(self.rule.call(self.module, x, **inputs))


def ask(
    module: nn.Module,
    domain: Domain,
    context: Domain | torch.Tensor | None,
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
    return question, workplace(module)


def output_of(found: Any) -> torch.Tensor:
    """The tensor in what a module returns."""
    for name in ("logits", "last_hidden_state"):
        if hasattr(found, name):
            found = getattr(found, name)
    if isinstance(found, tuple):
        found = found[0]
    if not isinstance(found, torch.Tensor):
        raise TypeError(f"the module returns {type(found).__name__}, of which no tensor is known")
    return found


def _region(domain: Domain | torch.Tensor, device: torch.device) -> Region:
    """Where tokens can be at the entrance."""
    if isinstance(domain, Ball):
        return everything(domain.shape, domain.radius)
    if isinstance(domain, Everywhere):
        return everything(domain.shape, float("inf"))
    fixed = isinstance(domain, torch.Tensor)
    given = At(domain) if isinstance(domain, torch.Tensor) else domain
    centre = given.inputs.to(device, torch.float64)
    region = start(centre[:, None] if centre.ndim == 2 else centre, given.radius)
    return region.but(lip=region.lip * 0, radius=region.radius * 0) if fixed else region


def _points(domain: Domain | torch.Tensor, count: int, source: torch.Generator) -> torch.Tensor:
    """Points of a domain: those given, or random ones at several scales."""
    if isinstance(domain, torch.Tensor):
        return domain.detach()
    if isinstance(domain, At):
        return domain.inputs.detach()
    noise = torch.randn(count, *domain.shape, generator=source, dtype=torch.float64)
    scales = 10.0 ** -torch.arange(count, dtype=torch.float64)
    if isinstance(domain, Ball):
        token = noise.flatten(1).norm(dim=1) if noise.ndim == 4 else noise.norm(dim=-1)
        longest = token.reshape(count, -1).amax(dim=1)
        scales = scales * domain.radius * 0.999 / longest
    return noise * scales.reshape(-1, *[1] * (noise.ndim - 1))


def agree(question: Question, y: Region, device: torch.device) -> None:
    """Refuse a rule that does not describe the module: at the same inputs, both give the same.

    They are compared at the given inputs, unless these are long, and at a short random one. The
    module runs in its own precision (float32, if that is half), so half of the digits must agree.
    """
    dtype, _ = runs_in(question.module, question.domain)
    if dtype in (torch.float16, torch.bfloat16):
        question = replace(question, module=copy.deepcopy(question.module).float())
    points = question.points(1)
    simple = not question.masks and question.context is None
    if y.centre is not None and not (simple and points[0][..., 0].numel() > LONG):
        _compare(question, points, y.centre)
    if y.centre is None or simple:
        short = question if y.centre is None else question.short()
        points = short.points(1)
        here = short.at(*(point.to(torch.float64) for point in points))
        found = here.answer(Run(question.norm, 0.0, device, dry=True)).centre
        assert found is not None
        _compare(short, points, found)


def _compare(question: Question, points: list[torch.Tensor], centre: torch.Tensor) -> None:
    name = type(question.module).__name__
    executed = question.call(*points).to(centre)
    if executed.numel() != centre.numel():
        raise RuntimeError(
            f"the rule for {name} gives an output of shape {tuple(centre.shape)}, the module "
            f"{tuple(executed.shape)}: the rule does not fit"
        )
    if not bool(torch.isfinite(executed).all()):
        raise ValueError(f"the output of {name} overflows or is no number at these inputs")
    many = len(centre)
    apart = (executed.reshape(many, -1) - centre.reshape(many, -1)).norm(dim=1)
    size = centre.reshape(many, -1).norm(dim=1)
    allowed = 4 * max(torch.finfo(points[0].dtype).eps ** 0.5, 1e-5)
    worst = float((apart / (size + 1e-30)).max())
    if not worst <= allowed:
        raise RuntimeError(
            f"the rule for {name} does not describe this module: their outputs differ by "
            f"{worst:.2g} of their size. Does a subclass or a switch change what it does, or are "
            "the numbers beyond its precision?"
        )


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
