"""Run: follow the tokens through a network, rule by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from taut.torch._attention import AttentionMaps
from taut.torch._mlp import MlpMaps
from taut.torch._numbers import Numbers, over, times
from taut.torch._region import Region
from taut.torch._rules import MissingRuleError, find
from taut.torch._tree import Node


class Run(MlpMaps, AttentionMaps):
    """What a rule works with: children by their own rules, and the maps that modules are made of.

    Call it with a module and a region for what the module's own rule makes of the region.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._missing: list[tuple[str, nn.Module]] = []

    def __call__(
        self,
        module: nn.Module,
        x: Region,
        name: str = "",
        *,
        context: Region | None = None,
        **inputs: Any,
    ) -> Region:
        """What a module makes of the region; ``name`` is its place in its parent."""
        rule = find(module)
        if rule is None:
            path = ".".join([*(node.name for node in self._open[2:]), name])
            self._missing.append((path, module))
            lost = x.length + np.inf
            return x.but(centre=None, radius=lost, length=lost, lip=lost)
        if context is None:
            unit = x.lip
            given = {}
        else:  # in units of what moves more, so that the constant is the module's own
            unit = np.maximum(x.lip, context.lip)
            given = {"context": context.but(lip=_portion(context.lip, unit))}
        node = Node(name, type(module).__name__)
        with self.inside(node):
            y = rule.bound(self, module, x.but(lip=_portion(x.lip, unit)), **given, **inputs)
        node.constant = y.lip
        whole: Region = y.but(lip=times(unit, y.lip))
        if self.head is not None and self.head.output is y:
            features = self.head.features
            features = features.but(lip=times(unit, features.lip))
            self.head = self.head._replace(features=features, output=whole)
        return whole

    def done(self) -> None:
        """Refuse to answer if rules were missing."""
        if self._missing:
            raise MissingRuleError(self._missing)


def _portion(lip: Numbers, unit: Numbers) -> Numbers:
    """lip/unit, at most 1. Infinities have no ratio: 1 is safe."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(
            lip == 0,
            0.0,
            np.where(
                lip == unit, 1.0, np.where(np.isinf(unit), 1.0, np.minimum(over(lip, unit), 1.0))
            ),
        )
