"""Scores of translations and of replies."""

from __future__ import annotations

from typing import Any

from taut.reproduce.seq2seq.bleu import bleu
from taut.reproduce.seq2seq.dialogue_scores import dialogue_scores


def score_translations(answers: list[str], references: list[str]) -> dict[str, Any]:
    """BLEU with its signature."""
    found = bleu(answers, references)
    return {
        "headline": f"BLEU {found.score:.2f}", "bleu": found.score, "signature": found.signature,
        "brevity": found.brevity_penalty, "precisions": list(found.precisions),
    }  # fmt: skip


def score_replies(answers: list[str], references: list[str]) -> dict[str, Any]:
    """The nine measures, how each was computed, and the share of different replies.

    A model that has learnt little gives one reply to everything, and what that scores is chance.
    """
    found = dialogue_scores(answers, references)
    return {
        "headline": ", ".join(f"{score.name} {score.value:.2f}" for score in found[:2]),
        **{score.name: score.value for score in found},
        "different": 100 * len(set(answers)) / len(answers),
        "how": {score.name: score.how for score in found},
    }
