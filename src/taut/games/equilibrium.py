"""One call for every two-player game: it picks the solver that the game needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from taut.games._files.read import Payoffs, read
from taut.games.anneal import Annealed, anneal
from taut.games.logit import logit_equilibrium
from taut.games.logit_answer import LogitEquilibrium
from taut.games.solution import Solution
from taut.games.solve import solve


def equilibrium(
    game: Any,
    temperature: float | None = None,
    *,
    method: str | None = None,
    damping: float | None = None,
    tolerance: float | None = None,
    max_iterations: int | None = None,
    callback: Callable[[Any, float], object] | None = None,
) -> Solution | Annealed | LogitEquilibrium:
    """Solve a two-player game from a file, or one that :func:`read` takes.

    Zero-sum games go to :func:`solve`, or without a temperature to :func:`anneal`, which finds a
    Nash equilibrium; games with two matrices go to :func:`logit_equilibrium`.

    Parameters
    ----------
    game
        A path, :class:`Payoffs`, or a game of pygambit or nashpy.
    temperature
        Temperature > 0 in units of payoff; None for a Nash equilibrium.
    method, damping
        How a zero-sum game is solved at a temperature; None for the default of :func:`solve`.
    tolerance, max_iterations, callback
        As the solver takes them; None for its defaults.

    Examples
    --------
    >>> import numpy as np
    >>> pennies = Payoffs(np.array([[-1.0, 1], [1, -1]]), np.array([[1.0, -1], [-1, 1]]))
    >>> equilibrium(pennies, 0.5).x
    array([0.5, 0.5])
    """
    payoffs = game if isinstance(game, Payoffs) else read(game)
    asked = {"tolerance": tolerance, "max_iterations": max_iterations, "callback": callback}
    given: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    steered: dict[str, Any] = {
        name: value
        for name, value in (("method", method), ("damping", damping))
        if value is not None
    }
    if temperature is None:
        if steered:
            raise ValueError(
                "method and damping need a temperature: they are not for Nash equilibria"
            )
        return anneal(payoffs.costs, **given)
    if not temperature > 0:
        raise ValueError(f"temperature must be > 0, got {temperature}")
    if payoffs.zero_sum:
        return solve(payoffs.costs, temperature, **steered, **given)
    if steered:
        raise ValueError("method and damping belong to zero-sum games; this one has two matrices")
    return logit_equilibrium(payoffs.row, payoffs.column, temperature, **given)
