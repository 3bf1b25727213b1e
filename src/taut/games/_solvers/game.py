"""A batch of zero-sum games as the solvers see it."""

from __future__ import annotations

from typing import NamedTuple

from taut._base.array import Array, eps_of
from taut.games._solvers.formulas import error_of_logits


class Game(NamedTuple):
    """A batch of zero-sum games: the row player pays xᵀAy, the column player receives it.

    ``payoffs`` (games, n, m) have ``offset`` (games,) taken off, which changes nothing but the
    value; ``largest`` is the largest size of a payoff then. ``temperature`` (games,) is τ,
    ``interaction`` (games,) an upper bound on D, which is D but for rounding where ``exact``;
    ``means`` (games, n) are the means of the rows, their costs against the uniform strategy, and
    ``logit_error`` (games,) bounds the rounding error of a logit.
    """

    payoffs: Array
    temperature: Array
    offset: Array
    largest: Array
    interaction: Array
    means: Array
    logit_error: Array
    exact: bool

    def take(self, index: Array) -> Game:
        """The games with these numbers."""
        if len(index) == self.temperature.shape[0]:
            return self
        fields = self._asdict()
        fields.update((name, fields[name][index]) for name in fields if name != "exact")
        return Game(**fields)

    def at(self, temperature: Array) -> Game:
        """The same games at another temperature."""
        return self._replace(
            temperature=temperature,
            logit_error=logit_error(self.payoffs.shape, self.largest, temperature),
        )

    def to_rows(self, y: Array) -> Array:
        """A y, what each row costs against y."""
        return (self.payoffs @ y[..., None])[..., 0]

    def to_columns(self, x: Array) -> Array:
        """Aᵀx, what each column receives against x."""
        return (x[..., None, :] @ self.payoffs)[..., 0, :]

    @property
    def sensitivity(self) -> Array:
        """R = D/4τ: plain iteration contracts total variation by r²."""
        return self.interaction / (4 * self.temperature) * (1 + 4 * eps_of(self.temperature))


def logit_error(shape: tuple[int, ...], largest: Array, temperature: Array) -> Array:
    """Bound on the rounding error of a logit, in the precision of the temperatures."""
    n, m = shape[-2:]
    return error_of_logits(n, m, largest / temperature, eps_of(temperature))
