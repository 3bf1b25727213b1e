"""The names of penalties in a log."""

from __future__ import annotations

from collections.abc import Iterable

from taut.control.constraint import Constraint


def penalty_names(constraints: Iterable[Constraint]) -> dict[int, str]:
    """Names such as ``penalty/orthogonality``, by the id of the constraint.

    The second constraint of that name is ``penalty/orthogonality_2``, and so on. Constraints
    without a penalty have no name here.
    """
    found: dict[int, str] = {}
    for constraint in constraints:
        if not constraint.has_penalty or id(constraint) in found:
            continue
        name = plain = f"penalty/{constraint.name}"
        number = 1
        while name in found.values():
            number += 1
            name = f"{plain}_{number}"
        found[id(constraint)] = name
    return found
