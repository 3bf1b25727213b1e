"""LayerNorm and RMSNorm with their variance (theorem affine-norm)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from taut._base.rounding import EPS
from taut.networks.propagation.node import Node, Pulled
from taut.networks.propagation.rows import Rows, heads_apart
from taut.networks.propagation.value_factors import ValueFactors

if TYPE_CHECKING:
    from taut.networks.propagation.engine import Engine


class CentreNode(Node):
    """Every token minus its mean. Rounding: a sum of d terms, a division, a subtraction."""

    def value(self) -> torch.Tensor:
        """X minus its mean."""
        x = self.parents[0].centre
        return x - x.mean(dim=-1, keepdim=True)

    def prepare(self, engine: Engine) -> None:
        """A projection, which makes nothing longer."""
        (x,) = self.parents
        self.sizes = x.sizes
        self.local = engine.unit * (self.width + 4) * x.longest

    def push(self, *steps: torch.Tensor) -> torch.Tensor:
        """The same projection of the steps."""
        return steps[0] - steps[0].mean(dim=-1, keepdim=True)

    def grown(self, *sizes: torch.Tensor) -> torch.Tensor:
        """A projection makes nothing longer."""
        return sizes[0]

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The same projection of the rows."""
        values = rows.values - rows.values.mean(dim=-1, keepdim=True)
        lost = (self.width + 4) * EPS * rows.weighed(self.parents[0].sizes)
        return Pulled((rows.but(values),), rounding=lost)


class NormNode(Node):
    """gain∘y/√(mean y² + ε) + shift of every token, or of every head of it.

    With σ₀² = mean y₀² + ε, t = y₀·δ/(dσ₀²), w = |δ|²/(dσ₀²) and φ = (1 + 2t + w)^(−1/2) the output
    of a row a (times the gain) moves by [a·δ − (a·y₀)t + (a·y₀)(φ − 1 + t) + (a·δ)(φ − 1)]/σ₀. The
    first two terms are linear. As w ≥ t², φ − 1 + t lies between −w̄/2 and the larger t²/(1 + t) of
    both ends of t. Where that is worse than what the length of outputs allows, this counts.
    """

    kind = "norm"

    def __init__(
        self, y: Node, gain: torch.Tensor | None, shift: torch.Tensor | None, epsilon: float,
        heads: int = 1,
    ) -> None:  # fmt: skip
        one = torch.ones(y.width // heads, dtype=y.centre.dtype, device=y.centre.device)
        self.gain = one if gain is None else gain
        self.bias = None if shift is None else shift
        self.epsilon, self.heads = epsilon, heads
        super().__init__(y)
        self.far = self.half = self.middle = self.spread = self.most = torch.zeros(())
        self.lost = torch.zeros((), dtype=torch.bool)
        self.factors: ValueFactors | None = None

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return heads_apart(x, self.heads)

    @property
    def work(self) -> float:
        """Contracting the row with all entries."""
        return float(self.centre.numel() * (self.width // self.heads))

    def value(self) -> torch.Tensor:
        """The normalised tokens."""
        z = self._split(self.parents[0].centre)
        z = z / (z.square().mean(dim=-1, keepdim=True) + self.epsilon).sqrt() * self.gain
        z = z.flatten(-2)
        return z if self.bias is None else z + self.bias

    def prepare(self, engine: Engine) -> None:
        """How far t, w and φ can go."""
        (y,) = self.parents
        box = engine.box(y, factors=True)
        self.factors = engine.factors(y, self.heads)
        self.centre = self.value()
        y0 = self._split(y.centre)
        power = y0.square().mean(dim=-1) + self.epsilon
        self.spread = power.sqrt()  # (tokens, heads)
        size = y0.shape[-1] * power * (1 - 1e-9)
        low, high = self._along(engine, y, y0)
        # with 0 between them: the lines from the centre to all outputs lie in these limits
        low = (low / size * (1 + 1e-9)).clamp(max=0.0) - 1e-300
        high = (high / size * (1 + 1e-9)).clamp(min=0.0) + 1e-300
        lengths = torch.minimum(self._split(box).norm(dim=-1) * (1 + 1e-9), self.factors.lengths)
        w = lengths.square() / size * (1 + 1e-9)
        # 1 + 2t + w is at least 1 + 2t + ρt², ρ = dσ₀²/|y₀|² ≥ 1, wherever t is.
        rho = (size / y0.square().sum(dim=-1).clamp(min=1e-300)).clamp(min=1.0)
        at = torch.minimum(torch.maximum(-1 / rho, low), high)
        least = ((1 + 2 * at + rho * at**2) * (1 - 1e-9)).clamp(min=0.0)
        most = 1 + 2 * high + w
        largest = least.rsqrt() * (1 + 1e-9)  # of φ
        if self.epsilon > 0:
            largest = torch.minimum(largest, self.spread / self.epsilon**0.5 * (1 + 1e-9))
        ends = torch.maximum(low**2 / (1 + low), high**2 / (1 + high)) * (1 + 1e-9)
        top = torch.where(low > -1, torch.minimum(ends, largest - 1 + high), largest - 1 + high)
        bottom = -w / 2
        self.middle, self.half = (top + bottom) / 2, (top - bottom) / 2
        self.far = torch.maximum(largest - 1, 1 - most.rsqrt() * (1 - 1e-9)) + 16 * EPS
        # before the gain no output is longer than √d
        length = (self.width // self.heads) ** 0.5
        self.most = torch.minimum(lengths * largest / self.spread, lengths * 0 + 2 * length)
        self.most = self.most * (1 + 1e-9)
        relaxed = y0.norm(dim=-1) * self.half + lengths * self.far
        self.lost = ~(relaxed < self.most * self.spread)
        self.middle, self.half, self.far = (
            torch.where(self.lost, 0.0, each) for each in (self.middle, self.half, self.far)
        )
        gain = float(self.gain.abs().max())
        self.sizes = gain * self.most.norm(dim=-1) * (1 + 1e-9)
        fixed = 0.0 if self.bias is None else float(self.bias.norm())
        out = gain * length * self.heads**0.5 + fixed
        self.local = self.centre.new_full((self.tokens,), engine.unit * 2 * (self.width + 12) * out)

    def _along(
        self, engine: Engine, y: Node, y0: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Range of y₀·δ for every token and head."""
        rows = torch.zeros(self.tokens, self.heads, 1, self.heads, y0.shape[-1]).to(y0)
        for head in range(self.heads):
            rows[:, head, 0, head] = y0[:, head]
        token = torch.arange(self.tokens, device=y0.device).repeat_interleave(self.heads)
        low, high = engine.interval([(y, Rows(rows.reshape(len(token), 1, -1), token))])
        shape = (self.tokens, self.heads)
        return low.reshape(shape), high.reshape(shape)

    def pull(self, rows: Rows, *, lower: bool) -> Pulled:
        """The derivative at the centre, and what the variance adds to it."""
        assert self.factors is not None
        (y,) = self.parents
        a = self._split(rows.values) * self.gain
        y0, spread = rows.of(self._split(y.centre)), rows.of(self.spread)
        d = a.shape[-1]
        along = (a * y0).sum(dim=-1)
        lost = rows.of(self.lost)
        values = (a - (along / (d * spread**2))[..., None] * y0) / spread[..., None]
        shift = (along * rows.of(self.middle) / spread).flatten(1).sum(dim=1)
        moves = self.factors.reach(a, rows)
        error = (along.abs() * rows.of(self.half) + moves * rows.of(self.far)) / spread
        values = torch.where(lost[..., None], 0.0, values)
        error = torch.where(lost, a.norm(dim=-1) * rows.of(self.most), error)
        total = error.flatten(1).sum(dim=1) * (1 + 1e-9)
        moved = a.norm(dim=-1) / spread * rows.of(y.sizes)[..., None]
        doubt = a.norm(dim=-1) * y0.norm(dim=-1) * rows.of(self.middle.abs() + self.half) / spread
        rounding = (torch.where(lost, 0.0, moved) + doubt).flatten(1).sum(dim=1) * (
            4 * (d + 16) * EPS
        )
        return Pulled((rows.but(values.flatten(-2)),), shift, total, rounding)
