"""What the forward pass keeps of each row for the derivative; imports nothing."""

from __future__ import annotations

FOUND = 5
(
    FOUND_TOP,  # largest logit
    FOUND_SECOND,  # largest of the others
    FOUND_GAP,  # distance of the root from the second largest weight, in units of that weight
    FOUND_TAIL,  # sum of all weights but the largest, in the same units
    FOUND_E2,  # the second largest weight as rounded, which the gap belongs to
) = range(FOUND)
