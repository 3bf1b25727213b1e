"""Sequence-to-sequence transformers under constraints: data, training, decoding and scores.

:func:`read_corpus` and :func:`read_dialogues` give a :class:`Corpus`; a :class:`Recipe` says how a
model is made, trained and constrained (:class:`Way`); :func:`run` trains and scores one,
:func:`run_all` many, each once, going on after whatever stopped them.
"""

from taut.sequences._needed import for_training as _for_training

with _for_training():
    import torch as _torch  # noqa: F401

from taut.sequences._corpus import Corpus
from taut.sequences._decode import answers
from taut.sequences._dialogue_scores import Score, dialogue_scores
from taut.sequences._local import ntrex
from taut.sequences._models import build
from taut.sequences._queue import run_all
from taut.sequences._read import read_corpus, read_dialogues
from taut.sequences._recipe import Recipe
from taut.sequences._run import run
from taut.sequences._scores import Bleu, bleu
from taut.sequences._scoring import score_replies, score_translations
from taut.sequences._stopping import Stopped
from taut.sequences._subwords import Subwords
from taut.sequences._train import Data, train
from taut.sequences._ways import Way
from taut.sequences._word_vectors import WordVectors

__all__ = [
    "Bleu", "Corpus", "Data", "Recipe", "Score", "Stopped", "Subwords", "Way", "WordVectors",
    "answers", "bleu", "build", "dialogue_scores", "ntrex", "read_corpus", "read_dialogues", "run",
    "run_all", "score_replies", "score_translations", "train",
]  # fmt: skip
