"""Scores of sentences by vectors: embedding average, vector extrema and greedy matching."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from taut.reproduce.seq2seq.needed_packages import for_scores
from taut.reproduce.seq2seq.word_vectors import Vectors

Array = np.ndarray[Any, np.dtype[Any]]


class EmbeddingScores(NamedTuple):
    """The measures of each sentence, from −1 to 1, and the share of words with a vector."""

    average: Array
    extrema: Array
    greedy: Array
    known: float


def embedding_scores(
    hypotheses: Sequence[str], references: Sequence[str], vectors: Vectors
) -> EmbeddingScores:
    """The measures of Liu et al. (2016) as nlg-eval computes them.

    A word without a vector takes the one that ``vectors`` gives for it: with ``WordVectors`` and in
    nlg-eval the mean of all vectors, so that sentences of nothing but unknown words are alike. A
    sentence without words scores 0.
    """
    pairs = [
        (words(ours), words(theirs)) for ours, theirs in zip(hypotheses, references, strict=True)
    ]
    every = [word for pair in pairs for sentence in pair for word in sentence]
    place = {word: i for i, word in enumerate(dict.fromkeys(every))}
    if not place:
        nothing = np.zeros(len(pairs))
        return EmbeddingScores(nothing, nothing, nothing, 0.0)
    table, known = vectors.vectors(list(place))
    if not np.isfinite(table).all():
        raise ValueError(f"{vectors.name}: there are vectors with values that are not finite")
    table = np.asarray(table, dtype=np.float64)
    scores = np.zeros((len(pairs), 3))
    for i, pair in enumerate(pairs):
        if all(pair):
            ours, theirs = (table[[place[word] for word in sentence]] for sentence in pair)
            scores[i] = (
                cosine(ours.sum(axis=0), theirs.sum(axis=0)),
                cosine(_extrema(ours), _extrema(theirs)),
                _greedy(ours, theirs),
            )
    share = float(np.mean([known[place[word]] for word in every]))
    return EmbeddingScores(scores[:, 0], scores[:, 1], scores[:, 2], share)


def words(sentence: str) -> list[str]:
    """Words and punctuation by nltk's rules (Treebank), in one step.

    nlg-eval first splits text into sentences, by a model that has to be downloaded; that differs
    for full stops inside the text that are not set apart by a space.
    """
    with for_scores():
        from nltk.tokenize import word_tokenize
    return [str(word) for word in word_tokenize(sentence, preserve_line=True)]


def cosine(x: Array, y: Array) -> Array:
    """Cosines of the angles between rows of x and rows of y, 0 where one of them is 0."""
    return np.asarray(np.sum(_unit(x) * _unit(y), axis=-1))


def _unit(x: Array) -> Array:
    norms = np.linalg.norm(x, axis=-1, keepdims=True)
    return np.asarray(x / np.where(norms > 0, norms, 1.0))


def _extrema(x: Array) -> Array:
    """The value farthest from 0 in each dimension, the negative one if two are."""
    low, high = x.min(axis=0), x.max(axis=0)
    return np.asarray(np.where(high > -low, high, low))


def _greedy(x: Array, y: Array) -> float:
    """Mean of the best cosine of each word, of one sentence and of the other, averaged."""
    cosines = _unit(x) @ _unit(y).T
    return float(cosines.max(axis=0).mean() + cosines.max(axis=1).mean()) / 2
