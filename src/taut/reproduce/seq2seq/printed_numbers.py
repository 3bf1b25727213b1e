"""The numbers that Zhang et al. 2021 print for the transformer and its variants I, II, III."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

VARIANTS = ("VAR-I", "VAR-II", "VAR-III")
STRENGTHS = (1e-6, 1e-8, 1e-10)


class Printed(NamedTuple):
    """Numbers of one row of a table: of which data, and by method, the transformer's as base."""

    data: str
    values: dict[str, float]


_SUBWORDS = {  # Table 1, BLEU, and of en-de the text: there the size is transformer-base
    "de-en": ("IWSLT'14", 34.68, 34.87, 34.92, 35.20),
    "ro-en": ("IWSLT'14", 32.36, 32.68, 32.63, 32.44),
    "en-vi": ("IWSLT'15", 28.43, 30.16, 30.51, 30.42),
    "en-id": ("IWSLT'17", 47.40, 48.09, 48.05, 48.33),
    "en-et": ("WMT'17", 14.17, 14.83, 15.06, 14.87),
    "en-mk": ("SETIMES", 13.96, 14.74, 14.70, 14.62),
    "en-de": ("WMT'16", 27.3, None, None, 28.5),
}
_CHARACTERS = {  # Table 3
    "en-fr": ("WMT", 18.74, None, None, 19.40), "ro-en": ("IWSLT'14", 22.04, None, None, 22.61),
    "de-en": ("IWSLT'15", 27.59, None, None, 28.02),
}  # fmt: skip
MEASURES = ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr", "SkipThought", "embedding average",
            "vector extrema", "greedy matching")  # fmt: skip
_DIALOGUE = {  # Table 4
    "persona-chat": (
        (13.2, 15.1, 15.4, 16.3), (2.04, 2.28, 2.38, 2.50), (6.10, 6.55, 6.60, 6.70),
        (14.2, 14.7, 15.1, 15.1), (18.2, 18.7, 19.3, 18.3), (41.9, 42.8, 43.9, 43.3),
        (84.3, 84.6, 84.9, 84.6), (49.0, 48.2, 49.0, 48.6), (65.8, 66.2, 66.5, 66.4),
    ),
    "daily-dialog": (
        (12.1, 13.5, 13.3, 14.0), (6.22, 6.70, 6.52, 7.11), (8.23, 8.43, 8.39, 8.72),
        (21.1, 21.4, 21.7, 21.7), (79.3, 79.2, 79.6, 82.1), (66.9, 67.1, 67.1, 67.2),
        (84.9, 85.7, 85.6, 85.5), (53.1, 53.3, 53.4, 53.2), (72.1, 72.3, 72.6, 72.2),
    ),
}  # fmt: skip


def printed_bleu(source: str, target: str, tokens: str) -> Printed:
    """What the paper has for a pair of languages, on its own data; nothing if it has none."""
    table = _CHARACTERS if tokens == "characters" else _SUBWORDS
    data, *row = table.get(f"{source}-{target}", ("",))
    return _printed(str(data), row)


def printed_measures(corpus: str) -> dict[str, Printed]:
    """What the paper has for dialogues, by measure."""
    rows = _DIALOGUE.get(corpus, ((),) * len(MEASURES))
    data = {"persona-chat": "PersonaChat", "daily-dialog": "DailyDialog"}.get(corpus, "")
    return {name: _printed(data, row) for name, row in zip(MEASURES, rows, strict=True)}


def _printed(data: str, row: Sequence[Any]) -> Printed:
    named = zip(("base", *VARIANTS), row, strict=False)
    return Printed(data, {method: value for method, value in named if value is not None})
