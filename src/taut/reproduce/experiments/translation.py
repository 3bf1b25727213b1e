"""Translation of Zhang et al. 2021: transformers under orthogonality constraints, by BLEU."""

from __future__ import annotations

from taut.reproduce.result import Result
from taut.reproduce.seq2seq import ntrex, read_corpus, run_all, score_translations
from taut.reproduce.seq2seq.corpus import without_leaks
from taut.reproduce.seq2seq.page import translation_result
from taut.reproduce.seq2seq.task import Task, named


def run(task: Task) -> Result:
    """Train every method from every seed on parallel text, and compare their BLEU."""
    recipes = task.recipes()  # before data are read, so that mistakes show at once
    corpus = read_corpus(
        task.data, task.source, task.target, test=task.test, limit=task.limit,
        held_out=task.held_out,
    )  # fmt: skip
    tests, notes = {}, list(corpus.notes)
    if task.ntrex:
        pairs = ntrex(task.ntrex, task.source, task.target)
        tests["NTREX"] = without_leaks(pairs, corpus.train)
        if len(tests["NTREX"]) < len(pairs):
            left = len(pairs) - len(tests["NTREX"])
            notes.append(f"{left} pairs of NTREX left out: they occur in the training part")
    facts = run_all(
        recipes, corpus, task.output_dir / "runs", score_translations, tests=tests,
        jobs=task.jobs,
    )  # fmt: skip
    return translation_result(named(facts, corpus), notes)
