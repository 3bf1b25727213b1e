"""What the forward pass keeps of each row for the derivative; imports nothing."""

from __future__ import annotations

FOUND = 4
(
    FOUND_TOP,  # largest logit
    FOUND_SECOND,  # largest of the others
    FOUND_GAP,  # distance of the root from the second largest weight, in units of that weight
    FOUND_TAIL,  # sum of all weights but the largest, in the same units
) = range(FOUND)
