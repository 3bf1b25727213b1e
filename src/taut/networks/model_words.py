"""Whether replaced words can change the class that a model by name gives to texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from taut._base.settings import ModelSettings
from taut.models import tokenizer_of
from taut.networks.word_changes import WordChanges, word_changes
from taut.networks.word_replacements import (
    WordReplacements,
    nearest_replacements,
    read_synonyms,
    synonym_replacements,
)


class ReplacedWords(NamedTuple):
    """What may stand in the place of a text's words, and what that can do."""

    replacements: WordReplacements
    changes: WordChanges

    @property
    def example(self) -> str:
        """The text with the words that change its class; empty unless refuted."""
        found = self.changes.example
        return "" if found is None else self.replacements.replaced(found)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words, for JSON."""
        found = self.changes
        return {
            "text": self.replacements.text,
            "verdict": found.verdict,
            "predicted": found.predicted,
            "margin": found.margin if math.isfinite(found.margin) else None,
            "combinations": found.combinations,
            "example": self.example or None,
            "rounding": found.rounding,
            "words": {str(at): list(words) for at, words in self.replacements.words.items()},
        }


def model_words(
    network: Any, model: str, texts: Sequence[str], settings: ModelSettings
) -> tuple[ReplacedWords, ...]:
    """The verdict on every text; empty if no replacements were asked for."""
    if settings.synonyms is None and settings.nearest_words is None:
        return ()
    if not hasattr(network, "get_input_embeddings"):
        raise ValueError("words can only be replaced in the text of a Hugging Face model")
    if getattr(network.config, "is_encoder_decoder", False):
        raise ValueError("words cannot be replaced in the input of an encoder-decoder model")
    tokenizer = tokenizer_of(model, settings.revision)
    given = None if settings.synonyms is None else read_synonyms(settings.synonyms)
    found = []
    for text in texts:
        if given is None:
            assert settings.nearest_words is not None
            each = nearest_replacements(network, tokenizer, text, settings.nearest_words)
        else:
            each = synonym_replacements(network, tokenizer, text, given)
        changes = word_changes(network, each.x, each.vectors, time_limit=settings.time_limit)
        found.append(ReplacedWords(each, changes))
    return tuple(found)
