"""Property: what a network's output must satisfy, as linear functions of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from taut._base.checks import whole_number
from taut.networks.propagation.targets import margins


class Property(NamedTuple):
    """For every clause, one of its functions of the output is above its number, at each input.

    Attributes
    ----------
    rows
        Coefficients on the output, (functions, tokens, width).
    above
        What each function must exceed, (functions,).
    clause
        The clause of each function, from 0, (functions,).
    label
        The class, if the property is that no other one is as likely.
    """

    rows: torch.Tensor
    above: torch.Tensor
    clause: torch.Tensor
    label: int | None

    @property
    def clauses(self) -> int:
        """How many clauses there are."""
        return int(self.clause.max()) + 1

    def ahead(self, outputs: torch.Tensor) -> torch.Tensor:
        """How far each clause is satisfied at each output (batch, ...), (batch, clauses)."""
        flat = outputs.double().reshape(len(outputs), -1)
        ahead = flat @ self.rows.flatten(1).mT.to(flat) - self.above.to(flat)
        each = [ahead[:, self.clause == c].amax(dim=1) for c in range(self.clauses)]
        return torch.stack(each, dim=1)

    def least(self, outputs: torch.Tensor) -> torch.Tensor:
        """How far the worst clause is satisfied at each output; ≤ 0 is a violation."""
        return self.ahead(outputs).amin(dim=1)


def class_property(output: torch.Tensor, label: int | None) -> Property:
    """No other class has a logit as large as that of the given one, or of the predicted one."""
    if output.shape[0] != 1:
        raise TypeError(
            f"a classifier must give one row of logits for each input, this one gives "
            f"{output.shape[0]}; pass targets for other outputs"
        )
    classes = output.shape[1]
    if classes < 2:
        raise ValueError("a classifier has at least two classes; pass targets for other outputs")
    chosen = int(output[0].argmax()) if label is None else whole_number(label, name="label")
    if not 0 <= chosen < classes:
        raise ValueError(f"label must be from 0 to {classes - 1}, got {chosen}")
    rows = margins([chosen], classes).to(output)[0][:, None]
    return Property(rows, rows.new_zeros(len(rows)), torch.arange(len(rows)), chosen)


def given_property(
    output: torch.Tensor,
    targets: torch.Tensor,
    above: float | Sequence[float] | torch.Tensor,
    clauses: Sequence[int] | None,
) -> Property:
    """Functions of the output that were given, checked."""
    if not isinstance(targets, torch.Tensor) or not targets.is_floating_point():
        raise TypeError("targets must be a tensor of real numbers, coefficients of the output")
    tokens, width = output.shape
    fits = tuple(targets.shape[1:]) in ((tokens, width), *([(width,)] if tokens == 1 else []))
    if not fits or not len(targets):
        raise ValueError(
            f"targets must be (functions, *output) for an output of {tokens} tokens of width "
            f"{width}, got {tuple(targets.shape)}"
        )
    rows = targets.detach().to(output).reshape(-1, tokens, width)
    limits = torch.as_tensor(above, dtype=torch.float64).to(output)
    if limits.ndim > 1 or limits.numel() not in (1, len(rows)):
        raise ValueError(
            f"above must be one number, or one for each of {len(rows)} functions, got shape "
            f"{tuple(limits.shape)}"
        )
    if not bool(rows.isfinite().all()) or not bool(limits.isfinite().all()):
        raise ValueError("targets and above must be finite")
    number = np.arange(len(rows))
    if clauses is not None:
        found = [whole_number(c, name="a clause", least=0) for c in clauses]
        if len(found) != len(rows):
            raise ValueError(f"clauses must name one for each of {len(rows)} functions")
        number = np.unique(found, return_inverse=True)[1]
    return Property(rows, limits.expand(len(rows)), torch.as_tensor(number), None)
