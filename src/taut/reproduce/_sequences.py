"""S4's experiments: transformers under orthogonality constraints, for translation and dialogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from taut.reproduce._result import Result
from taut.reproduce._s4 import STRENGTHS, VARIANTS
from taut.reproduce._sequences_page import dialogue_result, translation_result


@dataclass(frozen=True)
class Task:
    """What is run: data, ways, seeds, and the numbers of a recipe that are not the usual ones."""

    data: str
    source: str = "de"
    target: str = "en"
    ways: tuple[str, ...] = ("base", *(f"{v}={s:g}" for v in VARIANTS for s in STRENGTHS))
    seeds: int = 3
    recipe: Mapping[str, Any] = field(default_factory=dict)
    test: str | None = None
    ntrex: str | None = None
    limit: int | None = None
    held_out: int | None = None
    turns: int = 1
    jobs: int = 1
    output_dir: Path = Path("taut-reproduce")


def translation(task: Task) -> Result:
    """Train every way from every seed on parallel text, and compare their BLEU."""
    from taut.sequences import ntrex, read_corpus, run_all, score_translations
    from taut.sequences._corpus import without_leaks

    recipes = _recipes(task)  # wrong ones are said before data are read
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
    return translation_result(_named(facts, corpus), notes)


def dialogue(task: Task) -> Result:
    """Train every way from every seed on dialogues, and compare the nine measures."""
    from taut.sequences import read_dialogues, run_all, score_replies

    recipes = _recipes(task)
    corpus = read_dialogues(task.data, turns=task.turns, limit=task.limit, held_out=task.held_out)
    facts = run_all(recipes, corpus, task.output_dir / "runs", score_replies, jobs=task.jobs)
    return dialogue_result(_named(facts, corpus), corpus.notes)


def _named(facts: list[dict[str, Any]], corpus: Any) -> list[dict[str, Any]]:
    """Runs may have been made under another name of the same data: the page is of this one."""
    return [{**one, "corpus": corpus.name} for one in facts]


def _recipes(task: Task) -> list[Any]:
    from taut.sequences import Recipe, Way

    if task.seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {task.seeds}")
    ways = [Way.parse(way) for way in task.ways]
    if len(set(ways)) < len(ways):
        raise ValueError("a way is given twice")
    if Way("base") not in ways:
        raise ValueError("the ways need base, with which the others are compared")
    first = Recipe(**task.recipe)
    # Seed by seed: what there is after a while can be compared.
    return [replace(first, way=way, seed=seed) for seed in range(task.seeds) for way in ways]
