"""WorstRow: what is kept of the row with the largest l2 constant of a head, so it can be shown.

A record holds one such row for each head: the keys that weigh most, those beside the query and the
two leading keys, and the scores of these two. Everything else of the row is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from taut.audit.record_checks import count, integers, numbers, part, words
from taut.audit.statistics.statistic import Array
from taut.models import HIDDEN

HEAVIEST = 32  # keys that are kept by their weight
LIGHTEST = 0.005  # weight from which on a key of a text is kept: lighter ones are but confetti
BESIDE = 6  # keys on either side of the query and of the two leading keys, which give the context
DIGITS = 6  # of weights: they are shown, not computed with


class WorstRow(NamedTuple):
    """Some keys of one row, in their order.

    Attributes
    ----------
    seen
        Number of keys that the row sees.
    place
        Position of the query in its input, from 0; -1 if it has none, like a class token.
    keys
        Numbers of the keys that are kept, from 0.
    places
        Their positions in the input, like ``place``.
    weights
        Their weights, rounded to 6 digits after the point.
    leading
        The two keys that weigh most, the first first; one if the row sees no other.
    scores
        Their scores.
    tokens
        Text of the kept keys; empty where it is not known.
    """

    seen: int
    place: int
    keys: tuple[int, ...]
    places: tuple[int, ...]
    weights: tuple[float, ...]
    leading: tuple[int, ...]
    scores: tuple[float, ...]
    tokens: tuple[str, ...] = ()

    @property
    def gap(self) -> float:
        """How far apart the scores of the two leading keys are; infinite if there is one."""
        return self.scores[0] - self.scores[1] if len(self.scores) == 2 else math.inf

    @property
    def flip(self) -> float:
        """The smallest change of the scores, in l2, that makes the two leading keys equal.

        Each moves by half of the gap towards the other. Any other change of two entries by d₁ and
        d₂ with d₂ − d₁ = gap is longer, as d₁² + d₂² ≥ (d₂ − d₁)²/2, and every other key is farther
        from the first one.
        """
        return self.gap / math.sqrt(2)

    @property
    def others(self) -> tuple[int, float]:
        """How many visible keys are left out, and their weight together."""
        return self.seen - len(self.keys), max(0.0, 1 - math.fsum(self.weights))

    def weight_of(self, key: int) -> float:
        """The weight of a key that is kept."""
        return self.weights[self.keys.index(key)]

    def named(self, token: Callable[[int], str]) -> WorstRow:
        """The same row with the text of its keys; ``token`` gives that of a position."""
        return self._replace(tokens=tuple(token(p) if p >= 0 else "" for p in self.places))

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in self._asdict().items()}

    @classmethod
    def from_dict(cls, data: Any) -> WorstRow:
        """The row that :meth:`to_dict` wrote; a ValueError says what is wrong with the data."""
        what = "a worst row"
        keys = part(data, "keys", list, what)
        size, seen = (len(keys),), count(data, "seen", what, least=1)
        found = integers(keys, size, f"'keys' of {what}")
        leading = part(data, "leading", list, what)
        first = integers(leading, (min(2, seen),), f"'leading' of {what}")
        place = integers([data.get("place")], (1,), f"'place' of {what}", least=-1)
        places = integers(data.get("places"), size, f"'places' of {what}", least=-1)
        weights = numbers(data.get("weights"), size, f"'weights' of {what}")
        scores = numbers(data.get("scores"), first.shape, f"'scores' of {what}")
        tokens = words(part(data, "tokens", list, what))
        if not (0 < len(found) <= seen and (np.diff(found) > 0).all() and set(leading) <= {*keys}):
            raise ValueError(f"the keys of {what} are not in order, or too many")
        if not ((weights >= 0) & (weights <= 1)).all() or not np.isfinite(scores).all():
            raise ValueError(f"the weights or scores of {what} are not those of a softmax")
        if len(tokens) not in (0, len(found)) or not (np.diff(scores) <= 0).all():
            raise ValueError(f"the tokens or scores of {what} do not match its keys")
        return cls(
            seen, int(place[0]), tuple(found.tolist()), tuple(places.tolist()),
            tuple(weights.tolist()), tuple(first.tolist()), tuple(scores.tolist()), tuple(tokens),
        )  # fmt: skip


def worst_row(scores: Array, places: Sequence[int], place: int, *, text: bool = False) -> WorstRow:
    """What is kept of a row of scores; ``places`` are the positions of its keys in the input.

    ``text`` keeps the keys beside the query and the two leading keys, too.
    """
    seen = np.flatnonzero(scores > HIDDEN)
    visible = scores[seen]
    weights = np.exp(visible - visible.max())
    weights /= weights.sum()
    # The heaviest first; of two that are alike the earlier one. Scores decide, as weights round.
    order = np.lexsort((seen, -visible))
    leading = seen[order[:2]]
    chosen = {*order[:HEAVIEST].tolist()}
    if text:
        chosen = {place for place in chosen if weights[place] >= LIGHTEST} | {*order[:2].tolist()}
        own = np.flatnonzero((np.asarray(places)[seen] == place) & (place >= 0))
        for centre in (*order[:2].tolist(), *own[:1].tolist()):
            chosen.update(range(max(0, centre - BESIDE), min(len(seen), centre + BESIDE + 1)))
    kept = np.array(sorted(chosen))
    return WorstRow(
        len(seen), place, tuple(seen[kept].tolist()),
        tuple(int(places[key]) for key in seen[kept]),
        tuple(weights[kept].round(DIGITS).tolist()),
        tuple(leading.tolist()), tuple(scores[leading].tolist()),
    )  # fmt: skip
