"""A module without affine bounds: its constant on the region that its input can be in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from taut.networks.interpreter import Interpreter
from taut.networks.propagation.node import Node, Pulled, UnboundedError
from taut.networks.propagation.rows import Rows
from taut.networks.region import Region, start
from taut.networks.rule_register import find

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class ConstantNode(Node):
    """The output of a module as a ball in l2 around where the centres lead.

    Parameters
    ----------
    module
        What has a rule, but one that works on regions by itself.
    x, context
        Its input, and what its cross-attention reads.
    inputs
        Masks and whatever else the rule takes.
    sample
        How many inputs these are for, and which of them is meant.
    """

    kind = "constant"

    def __init__(
        self,
        module: nn.Module,
        x: Node,
        context: Node | None,
        inputs: dict[str, Any],
        sample: tuple[int, int],
    ) -> None:
        self.module, self.inputs = module, inputs
        self.batch, self.sample = sample
        self.radius_of_all = 0.0
        super().__init__(*(x,) if context is None else (x, context))

    def value(self) -> torch.Tensor:
        """What the rule makes of the centres."""
        found = self._region([0.0] * len(self.parents), 0.0).centre
        assert found is not None
        return found[self.sample]

    def needs(self) -> tuple[torch.Tensor, ...]:
        """Everything."""
        return tuple(torch.ones(parent.tokens, dtype=torch.bool) for parent in self.parents)

    def _region(self, radii: list[float], eps: float) -> Region:
        run = Interpreter("l2", eps, self.parents[0].centre.device)
        regions = []
        for parent, radius in zip(self.parents, radii, strict=True):
            shape = parent.image or parent.centre.shape
            regions.append(
                start(parent.centre.reshape(1, *shape).expand(self.batch, *shape), radius)
            )
        rule = find(self.module)
        assert rule is not None
        given = {"context": regions[1]} if len(regions) > 1 else {}
        found: Region = rule.bound(run, self.module, regions[0], **given, **self.inputs)
        run.done()
        self.assumed = run.assumed
        return found

    def prepare(self, engine: Engine) -> None:
        """The constant holds as far as the input can be away."""
        radii = [float(parent.sizes.norm()) * (1 + 1e-9) for parent in self.parents]
        found = self._region(radii, engine.unit)
        assert found.centre is not None
        self.centre = found.centre[self.sample]
        far = float(np.asarray(found.away + found.err)[self.sample]) * (1 + 1e-9)
        if not far < float("inf"):
            raise UnboundedError
        self.radius_of_all = far
        self.sizes = torch.full_like(self.sizes, far)

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """Cauchy's inequality over all tokens; nothing is left to carry on."""
        error = rows.values.flatten(1).norm(dim=1) * (self.radius_of_all * (1 + 1e-9))
        return Pulled(tuple(None for _ in self.parents), 0.0, error)
