"""Sequence-to-sequence transformers under constraints: data, training, decoding and scores.

:func:`read_corpus` and :func:`read_dialogues` give a :class:`Corpus`; a :class:`Recipe` says how a
model is made, trained and constrained (:class:`Method`); :func:`run` trains and scores one,
:func:`run_all` many, each once, and resumes them after every interruption.
"""

from taut.reproduce.seq2seq.needed_packages import for_training as _for_training

with _for_training():
    import torch as _torch  # noqa: F401

from taut.reproduce.seq2seq.aligned_files import ntrex
from taut.reproduce.seq2seq.bleu import Bleu, bleu
from taut.reproduce.seq2seq.corpus import Corpus
from taut.reproduce.seq2seq.decode import answers
from taut.reproduce.seq2seq.dialogue_scores import Score, dialogue_scores
from taut.reproduce.seq2seq.methods import Method
from taut.reproduce.seq2seq.models import build
from taut.reproduce.seq2seq.queue import run_all
from taut.reproduce.seq2seq.read import read_corpus, read_dialogues
from taut.reproduce.seq2seq.recipe import Recipe
from taut.reproduce.seq2seq.run import run
from taut.reproduce.seq2seq.scoring import score_replies, score_translations
from taut.reproduce.seq2seq.stopping import Stopped
from taut.reproduce.seq2seq.subwords import Subwords
from taut.reproduce.seq2seq.task import Task
from taut.reproduce.seq2seq.train import train
from taut.reproduce.seq2seq.training import Data
from taut.reproduce.seq2seq.word_vectors import WordVectors

__all__ = [
    "Bleu",
    "Corpus",
    "Data",
    "Method",
    "Recipe",
    "Score",
    "Stopped",
    "Subwords",
    "Task",
    "WordVectors",
    "answers",
    "bleu",
    "build",
    "dialogue_scores",
    "ntrex",
    "read_corpus",
    "read_dialogues",
    "run",
    "run_all",
    "score_replies",
    "score_translations",
    "train",
]  # fmt: skip
