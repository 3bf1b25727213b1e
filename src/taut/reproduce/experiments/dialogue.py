"""Dialogue of Zhang et al. 2021: transformers under orthogonality constraints, by nine measures."""

from __future__ import annotations

from taut.reproduce.result import Result
from taut.reproduce.seq2seq import read_dialogues, run_all, score_replies
from taut.reproduce.seq2seq.page import dialogue_result
from taut.reproduce.seq2seq.task import Task, named


def run(task: Task) -> Result:
    """Train every method from every seed on dialogues, and compare the nine measures."""
    recipes = task.recipes()
    corpus = read_dialogues(task.data, turns=task.turns, limit=task.limit, held_out=task.held_out)
    facts = run_all(recipes, corpus, task.output_dir / "runs", score_replies, jobs=task.jobs)
    return dialogue_result(named(facts, corpus), corpus.notes)
