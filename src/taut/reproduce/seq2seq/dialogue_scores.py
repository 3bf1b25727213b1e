"""The nine measures of nlg-eval (Sharma et al. 2017), as in Zhang et al. 2021."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import numpy as np

from taut.reproduce.seq2seq.bleu import check_pairs
from taut.reproduce.seq2seq.cider import cider
from taut.reproduce.seq2seq.embedding_scores import cosine, embedding_scores
from taut.reproduce.seq2seq.meteor import meteor
from taut.reproduce.seq2seq.needed_packages import for_scores
from taut.reproduce.seq2seq.rouge import rouge_l
from taut.reproduce.seq2seq.sentence_vectors import Encoder, SentenceEncoder
from taut.reproduce.seq2seq.word_vectors import Vectors


class Score(NamedTuple):
    """A measure, its value times 100 as in the paper, and the package or stand-in behind it."""

    name: str
    value: float
    how: str


def dialogue_scores(
    hypotheses: Sequence[str], references: Sequence[str],
    encoder: Encoder | str | Path | None = None, *, vectors: Vectors | None = None,
) -> list[Score]:  # fmt: skip
    """The measures of nlg-eval, in the order of the paper; a sentence without words scores 0.

    As there, words are what stands between spaces and case matters, except that METEOR ignores
    case, and that the measures with vectors split words as nltk does: give text as the model was
    trained on.

    Parameters
    ----------
    hypotheses, references : sequences of str
        One reference for each hypothesis.
    encoder : Encoder, str or Path, optional
        Vectors of sentences, or a model of transformers by folder or name; MiniLM by default.
    vectors : Vectors, optional
        Vectors of words; those that the encoder begins with by default. With
        ``WordVectors.read("glove.6B.300d.txt")`` the measures are nlg-eval's.
    """
    check_pairs(hypotheses, references)
    return [
        *_overlap(hypotheses, references),
        *_by_vectors(hypotheses, references, encoder, vectors),
    ]


def _overlap(hypotheses: Sequence[str], references: Sequence[str]) -> list[Score]:
    value, how = meteor(hypotheses, references)
    return [
        Score("BLEU-1", bleu_of_words(hypotheses, references, 1), _bleu_label()),
        Score("BLEU-4", bleu_of_words(hypotheses, references, 4), _bleu_label()),
        Score("METEOR", 100 * value, how),
        Score(
            "ROUGE-L", 100 * float(np.mean(rouge_l(hypotheses, references))),
            f"rouge-score {version('rouge-score')}, F with beta 1.2, mean of sentences",
        ),
        Score(
            "CIDEr", 100 * float(np.mean(cider(hypotheses, references))),
            "taut, equal to pycocoevalcap 1.2",
        ),
    ]  # fmt: skip


def _bleu_label() -> str:
    return f"sacrebleu {version('sacrebleu')}, words by spaces, no smoothing"


def bleu_of_words(hypotheses: Sequence[str], references: Sequence[str], order: int) -> float:
    """BLEU in percent of all sentences together by n-grams up to an order, as coco-caption does."""
    with for_scores():
        from sacrebleu.metrics.bleu import BLEU
    metric = BLEU(tokenize="none", smooth_method="none", max_ngram_order=order, force=True)
    return float(metric.corpus_score(list(hypotheses), [list(references)]).score)


def _by_vectors(
    hypotheses: Sequence[str], references: Sequence[str],
    encoder: Encoder | str | Path | None, vectors: Vectors | None,
) -> list[Score]:  # fmt: skip
    if encoder is None or isinstance(encoder, (str, Path)):
        encoder = SentenceEncoder.load("minilm" if encoder is None else encoder)
    ours, theirs = encoder.encode(hypotheses), encoder.encode(references)
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise ValueError(f"{encoder.name}: there are sentences whose vectors are not finite")
    blank = [not (h.strip() and r.strip()) for h, r in zip(hypotheses, references, strict=True)]
    cosines = np.where(blank, 0.0, cosine(ours, theirs))
    stand_in = "stand-in for SkipThought: " if isinstance(encoder, SentenceEncoder) else ""
    how = "" if vectors is not None else "stand-in for GloVe: "
    if vectors is None:
        own = encoder if isinstance(encoder, SentenceEncoder) else SentenceEncoder.load()
        vectors = own.words()
    found = embedding_scores(hypotheses, references, vectors)
    how += f"{vectors.name}, {100 * found.known:.1f} % of words known"
    return [
        Score("SkipThought", 100 * float(cosines.mean()), stand_in + encoder.name),
        Score("embedding average", 100 * float(found.average.mean()), how),
        Score("vector extrema", 100 * float(found.extrema.mean()), how),
        Score("greedy matching", 100 * float(found.greedy.mean()), how),
    ]  # fmt: skip
