"""What is done to a training from a step on: nothing, or a fault."""

from __future__ import annotations

from typing import NamedTuple


class Disturbance(NamedTuple):
    """How a training goes on from the step at which faults begin.

    Attributes
    ----------
    said
        What is done, in words.
    rate
        The learning rate is multiplied by up to this, reached over ``over`` steps.
    bits
        Bits of the mantissa that attention keeps, without sums of rows in its gradient; None
        keeps all.
    growth
        Weights of queries and keys grow by this share after every step.
    bad
        Share of pieces whose following characters are those of another piece, over ``over`` steps.
    order
        Which pieces of the text are drawn: another number, another order.
    """

    said: str
    rate: float = 1.0
    over: int = 1
    bits: int | None = None
    growth: float = 0.0
    bad: float = 0.0
    order: int = 0

    def rate_at(self, since: int) -> float:
        """The factor of the learning rate so many steps after the beginning."""
        return float(self.rate ** min(1.0, (since + 1) / self.over))

    def bad_at(self, since: int) -> float:
        """The share of bad pieces so many steps after the beginning."""
        return self.bad * min(1.0, (since + 1) / self.over)


HEALTHY = {
    "healthy": Disturbance("nothing is changed"),
    "healthy-order": Disturbance("nothing is changed, the text comes in another order", order=1),
    "healthy-rate": Disturbance("twice the learning rate, which is still healthy", 2.0, order=2),
}
FAULTS = {
    "rate": Disturbance("the learning rate grows 30 times over 80 steps", 30.0, over=80),
    "low precision": Disturbance(
        "attention keeps 2 bits of mantissa, as float8 e5m2 does, rounds towards zero, and loses "
        "the sums over rows in its gradient to underflow; the learning rate doubles over 80 steps",
        2.0,
        over=80,
        bits=2,
    ),
    "growing weights": Disturbance(
        "weights of queries and keys, which no QK-norm follows, grow 6 % a step, as weight decay "
        "of the wrong sign does",
        growth=0.06,
    ),
    "bad batches": Disturbance(
        "the following characters are those of another piece, in a share of pieces that grows to "
        "all over 80 steps",
        bad=1.0, over=80,
    ),
}  # fmt: skip
