"""ROUGE-L as coco-caption and nlg-eval compute it, from the precision and recall of rouge-score."""

from __future__ import annotations

from collections.abc import Sequence

from taut.reproduce.seq2seq.needed_packages import for_scores

BETA = 1.2  # of coco-caption: recall counts a little more than precision


class _Spaces:
    """Words are what stands between spaces; rouge-score would drop case and punctuation."""

    def tokenize(self, text: str) -> list[str]:
        return text.split()


def rouge_l(hypotheses: Sequence[str], references: Sequence[str]) -> list[float]:
    """ROUGE-L of each sentence, from 0 to 1: by the longest common subsequence of words."""
    with for_scores():
        from rouge_score.rouge_scorer import RougeScorer
    scorer = RougeScorer(["rougeL"], tokenizer=_Spaces())
    return [
        _weighted(scorer.score(reference, hypothesis)["rougeL"])
        for hypothesis, reference in zip(hypotheses, references, strict=True)
    ]


def _weighted(score: tuple[float, float, float]) -> float:
    precision, recall, _ = score
    if not precision or not recall:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)
