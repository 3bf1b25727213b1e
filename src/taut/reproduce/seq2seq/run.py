"""One run: learn pieces, train, take the best weights, decode, score, and write the facts down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from taut.reproduce.seq2seq.batches import encoded
from taut.reproduce.seq2seq.corpus import Corpus, Pair
from taut.reproduce.seq2seq.methods import prepared
from taut.reproduce.seq2seq.models import build
from taut.reproduce.seq2seq.needed_packages import for_training
from taut.reproduce.seq2seq.recipe import Recipe
from taut.reproduce.seq2seq.run_folder import (
    FACTS,
    best_model,
    claim,
    identity,
    learnt_pieces,
    read_facts,
    write_facts,
)
from taut.reproduce.seq2seq.scored_answers import Scorer, scored, scores
from taut.reproduce.seq2seq.scoring import score_translations
from taut.reproduce.seq2seq.sensitivity import sensitivity
from taut.reproduce.seq2seq.train import train
from taut.reproduce.seq2seq.training import Data
from taut.reproduce.seq2seq.training_bar import without_bars
from taut.reproduce.seq2seq.training_log import course


def run(
    corpus: Corpus,
    recipe: Recipe,
    folder: str | Path,
    score: Scorer = score_translations,
    tests: Mapping[str, Sequence[Pair]] | None = None,
) -> dict[str, Any]:
    """Run a recipe on a corpus, or go on with it; its facts, which are read if it was done before.

    Parameters
    ----------
    corpus, recipe
        What decides the run.
    folder
        Folder of this run alone, for facts, answers, log, weights and checkpoints. The folder of
        another run is refused.
    score
        From answers and references to a dict of scores that JSON can hold, with a ``headline`` to
        print: :func:`score_translations`, :func:`score_replies`, or your own.
    tests
        Pairs to answer besides those of the corpus, by name.
    """
    folder = Path(folder)
    with without_bars():
        return _run(corpus, recipe, folder, score, {"test": corpus.test, **(tests or {})})


def _run(
    corpus: Corpus, recipe: Recipe, folder: Path, score: Scorer, asked: dict[str, Sequence[Pair]]
) -> dict[str, Any]:
    with for_training():
        from accelerate import PartialState

    file = folder / FACTS
    claim(folder, recipe, corpus)
    facts = read_facts(file)
    if facts is None:
        facts = _trained(corpus, recipe, folder)
    missing = {} if "failed" in facts else {
        name: pairs for name, pairs in asked.items()
        if not scored(facts["scores"].get(name), name, pairs, score)
    }  # fmt: skip
    if PartialState().is_main_process:
        if missing:
            facts["scores"] |= scores(facts, missing, recipe, folder, score, corpus.latest)
        if missing or not file.exists():
            write_facts(facts, file)
    PartialState().wait_for_everyone()
    return read_facts(file) or {}


def _trained(corpus: Corpus, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Train, and say how it went and what it did."""
    subwords = learnt_pieces(corpus, recipe, folder)
    data = Data(
        *(
            encoded(subwords, part, recipe.longest, latest=corpus.latest)
            for part in (corpus.train, corpus.valid)
        )
    )
    model = build(
        recipe.size, len(subwords), longest=recipe.longest, family=recipe.family, seed=recipe.seed
    )
    prepared(model, recipe.method)  # what is measured first is what is trained
    full = [len(row) == recipe.longest for pair in data.train for row in pair]
    facts: dict[str, Any] = {
        **identity(corpus, recipe), "corpus": corpus.name,
        "languages": [corpus.source, corpus.target],
        "pairs": [len(part) for part in (corpus.train, corpus.valid, corpus.test)],
        "parameters": sum(p.numel() for p in model.parameters()), "pieces": len(subwords),
        "cut": sum(full) / len(full),
    }  # fmt: skip
    before = sensitivity(model, data.valid)
    try:
        progress = train(model, data, recipe, folder)
    except FloatingPointError as error:  # a run that breaks down is a result
        return {**facts, "failed": str(error)}
    if not math.isfinite(progress.best):
        return {**facts, "failed": "the loss of validation was never a number"}
    best = best_model(recipe, folder, progress.best_step)
    return {**facts, **course(progress, folder), "before": before,
            "after": sensitivity(best, data.valid), "scores": {}}  # fmt: skip
