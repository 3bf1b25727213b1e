"""How far rounding may have moved what the compiled kernel computes; imports nothing."""

from __future__ import annotations

# Bound on the relative error in units of eps: summing a block in at least 2 (float64) or 4
# (float32) lanes of 32 terms 16, or a short row side by side with others by 3 + 128/8 additions 10;
# the exponential 1, sums across blocks, root and final operations 4, and a margin. Differences and
# products are compensated, so depth does not enter.
ERROR = 24.0


def error_bound(single: bool, scale: float) -> tuple[float, float]:
    """Relative and absolute error that rounding may have caused, in float32 or in float64."""
    eps, smallest = (2.0**-23, 2.0**-149) if single else (2.0**-52, 2.0**-1074)
    return ERROR * eps, 4 * max(1.0, scale) * smallest
