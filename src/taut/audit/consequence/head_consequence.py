"""HeadConsequence: sums over samples of what disturbing each head of a layer would change.

A sample brings the predicted KL divergence of all its predictions, and their number. The
consequence of a head is the ratio of both sums, per prediction; all of it adds, and so can be
merged.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from taut.audit.consequence.noise import KINDS, NOISE
from taut.audit.record_checks import count, finite, integers, numbers, part
from taut.audit.statistics.exact_sum import check_rests, exact_sum

Array = np.ndarray[Any, np.dtype[Any]]
SUMS = ("kl", "tokens", "kl_kl", "kl_tokens", "tokens_tokens")


class HeadConsequence:
    """What was summed for the heads of one layer; all arrays are (kinds, heads).

    Attributes
    ----------
    heads
        Number of heads.
    samples
        Number of samples that count.
    broken
        Number of samples with a derivative that is not finite, which do not.
    sums
        Sums over samples of the predicted KL divergence, the number of predictions, and the
        products of both.
    rests
        What rounding left out of each sum, see :func:`exact_sum`.
    reason
        Why something could not be measured.
    """

    def __init__(self, heads: int, reason: str = "") -> None:
        shape = (len(KINDS), heads)
        self.heads, self.reason = heads, reason
        self.samples: Array = np.zeros(shape, dtype=np.int64)
        self.broken: Array = np.zeros(shape, dtype=np.int64)
        self.sums: dict[str, Array] = {name: np.zeros(shape) for name in SUMS}
        self.rests: dict[str, list[Array]] = {name: [] for name in SUMS}

    def add(self, kl: Array, tokens: int) -> None:
        """Add a sample: KL divergences (kinds, heads), NaN where a kind could not be measured.

        Infinite ones are derivatives that overflowed.
        """
        known, broken = np.isfinite(kl), np.isinf(kl)
        size = np.where(known, kl, 0.0)
        self.samples += known
        self.broken += broken
        products = (size, tokens, size * size, size * tokens, tokens * tokens)
        for name, value in zip(SUMS, products, strict=True):
            self._plus(name, known * value)

    def _plus(self, name: str, *terms: Array) -> None:
        known = (self.sums[name], *self.rests[name])
        self.sums[name], self.rests[name] = exact_sum([*known, *terms])

    def mean(self, kind: str) -> Array:
        """KL divergence per prediction of every head; NaN if no sample counts."""
        at = KINDS.index(kind)
        tokens = self.sums["tokens"][at]
        return np.where(tokens > 0, self.sums["kl"][at] / np.maximum(tokens, 1), np.nan)

    def error(self, kind: str) -> Array:
        """Standard error of :meth:`mean` over samples and draws; NaN below two samples."""
        at = KINDS.index(kind)
        n, tokens, mean = self.samples[at], self.sums["tokens"][at], self.mean(kind)
        spread = (
            self.sums["kl_kl"][at]
            - 2 * mean * self.sums["kl_tokens"][at]
            + mean * mean * self.sums["tokens_tokens"][at]
        )
        variance = n / np.maximum(n - 1, 1) * np.maximum(spread, 0.0)
        found = np.sqrt(variance) / np.maximum(tokens, 1)
        return np.where((n > 1) & (tokens > 0), found, np.nan)

    def fits(self, other: HeadConsequence) -> None:
        """Raise an error if another one cannot be merged."""
        if other.heads != self.heads:
            raise ValueError(f"cannot merge consequences of {other.heads} heads into {self.heads}")

    def merge(self, other: HeadConsequence) -> None:
        """Add what another process has seen."""
        self.fits(other)
        self.samples, self.broken = self.samples + other.samples, self.broken + other.broken
        for name in SUMS:
            self._plus(name, other.sums[name], *other.rests[name])
        self.reason = max(self.reason, other.reason)  # the same in whichever order they come

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers for JSON; sums over no samples are null."""
        there = self.samples > 0
        return {
            "noise": dict(NOISE),
            "heads": self.heads,
            "samples": self.samples.tolist(),
            "broken": self.broken.tolist(),
            "sums": {n: finite(np.where(there, v, np.nan)) for n, v in self.sums.items()},
            "rests": {n: [finite(v) for v in rests] for n, rests in self.rests.items()},
            "reason": self.reason,
        }

    @classmethod
    def from_dict(cls, data: Any, heads: int) -> HeadConsequence:
        """What :meth:`to_dict` wrote; a ValueError says what is wrong with the data."""
        what = "a consequence"
        if count(data, "heads", what, least=1) != heads:
            raise ValueError(f"{what} is not of the {heads} heads of its layer")
        if part(data, "noise", dict, what) != NOISE:
            raise ValueError(f"{what} is of noise of another size")
        found = cls(heads, part(data, "reason", str, what))
        shape, given = found.samples.shape, part(data, "sums", dict, what)
        rests = part(data, "rests", dict, what)
        found.samples = integers(data.get("samples"), shape, f"'samples' of {what}")
        found.broken = integers(data.get("broken"), shape, f"'broken' of {what}")
        for name in SUMS:
            value = numbers(given.get(name), shape, f"{name!r} of {what}", missing=0.0)
            if (value < 0).any():
                raise ValueError(f"{name!r} of {what} is negative")
            found.sums[name], label = value, f"{name!r} of 'rests' of {what}"
            found.rests[name] = [numbers(r, shape, label) for r in part(rests, name, list, what)]
            check_rests(value, found.rests[name], f"{name!r} of {what}")
        return found
