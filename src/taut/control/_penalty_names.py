"""The names of penalties in a log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def penalty_names(constraints: Iterable[Any]) -> dict[int, str]:
    """Names such as ``penalty/orthogonality``, by the id of the constraint.

    The second constraint of a name is ``penalty/orthogonality_2``, and so on. Constraints that add
    nothing to the loss have none.
    """
    found: dict[int, str] = {}
    for constraint in constraints:
        if not constraint.in_loss or id(constraint) in found:
            continue
        name = plain = f"penalty/{getattr(constraint, 'name', type(constraint).__name__)}"
        number = 1
        while name in found.values():
            number += 1
            name = f"{plain}_{number}"
        found[id(constraint)] = name
    return found
