"""Interpreter: follow the tokens through a network, rule by rule."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from taut._base.rounding import Numbers, over
from taut.networks.module_tree import ModuleNode
from taut.networks.operations.attention import AttentionOperations
from taut.networks.operations.averages import AverageOperations
from taut.networks.operations.distance_attention import DistanceOperations
from taut.networks.operations.mixture import MixtureOperations
from taut.networks.operations.normalisation import NormOperations
from taut.networks.region import Region
from taut.networks.rule_register import MissingRuleError, find


class Interpreter(
    NormOperations, AverageOperations, AttentionOperations, DistanceOperations, MixtureOperations
):
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
            self._missing.append((self.tree.path(name), module))
            lost = x.length + np.inf
            return x.but(centre=None, radius=lost, length=lost, lip=lost)
        if context is None:
            unit = x.lip
            given = {}
        else:  # in units of what moves more, so that the constant is the module's own
            unit = np.maximum(x.lip, context.lip)
            given = {"context": context.but(lip=_portion(context.lip, unit))}
        node = ModuleNode(name, type(module).__name__)
        with self.tree.inside(node):
            y: Region = rule.bound(
                self, module, x.but(lip=_portion(x.lip, unit)), **given, **inputs
            )
        node.constant = y.lip
        return y.in_units(unit)

    def done(self) -> None:
        """Refuse to answer if rules are missing."""
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
