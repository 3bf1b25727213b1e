"""BLEU of translations, with the signature that says how it was computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from taut.reproduce.seq2seq.needed_packages import for_scores


class Bleu(NamedTuple):
    """BLEU in percent, sacrebleu's signature, and the parts that the score is made of."""

    score: float
    signature: str
    brevity_penalty: float
    precisions: tuple[float, ...]


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Bleu:
    """BLEU of all sentences together, equal to what the command ``sacrebleu`` prints.

    Sentences are given as text, not as tokens: sacrebleu splits them (13a), so that scores of
    different models can be compared (Post, 2018).
    """
    check_pairs(hypotheses, references)
    with for_scores():
        from sacrebleu.metrics.bleu import BLEU
    metric = BLEU(lowercase=lowercase)
    found = metric.corpus_score(list(hypotheses), [list(references)])
    signature = str(metric.get_signature())
    return Bleu(float(found.score), signature, float(found.bp), tuple(found.precisions))


def check_pairs(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    """Raise unless there are as many hypotheses as references, all of them text."""
    for name, sentences in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(sentences, str):
            raise TypeError(f"{name} is one string: give a list of sentences")
        for i, sentence in enumerate(sentences):
            if not isinstance(sentence, str):
                kind = type(sentence).__name__
                raise TypeError(f"{name}[{i}] is of type {kind}: give sentences as strings")
    if len(hypotheses) != len(references):
        raise ValueError(
            f"{len(hypotheses)} hypotheses and {len(references)} references: "
            "give one reference for each hypothesis"
        )
    if not hypotheses:
        raise ValueError("there is nothing to score: both lists are empty")
