"""Activations: a function of one number, applied to every number."""

from __future__ import annotations

from typing import Any

from taut._base.rounding import plus, root, times
from taut.networks.operations.activation_slopes import Activation, known_activation
from taut.networks.operations.setting import Setting
from taut.networks.region import Region


class ActivationOperations(Setting):
    """Functions of one number."""

    def known(self, function: Any) -> Activation:
        """An activation with its slopes, or an error that says how to give one."""
        found = known_activation(function)
        self.assumed = self.assumed or not found.accurate
        return found

    def activation(self, x: Region, function: Any, name: str | None = None) -> Region:
        """A function applied to every number: a module or function of torch, or Activation.

        Rounding: a few operations and elementary functions, in all less than 8 EPS of
        ``L|x| + |φ(0)|`` for every activation of the table, as their relative condition is at most
        that. A function of your own is taken to be as accurate, and the rounding of the
        certificate is then called estimated. A jump counts in full.
        """
        self.tokens_only(x)
        act = self.known(function)
        rule = f"slopes {act.low:.4g} to {act.high:.4g}"
        self.leaf(name, "activation", act.constant, rule, "activation-slope")
        size = plus(times(act.constant, x.length), times(act.at_zero, root(x.width)))
        centre = None if x.centre is None else act.function(x.centre)
        jump = self.offset(times(act.jump, root(x.width * x.tokens)))
        return x.moved(centre, act.constant, size, self.rounding(x, size, 8) + jump, x.width)
