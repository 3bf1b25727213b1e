"""What translation and dialogue are asked to do: data, methods, seeds and a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from taut.reproduce.seq2seq.corpus import Corpus
from taut.reproduce.seq2seq.methods import Method
from taut.reproduce.seq2seq.printed_numbers import STRENGTHS, VARIANTS
from taut.reproduce.seq2seq.recipe import Recipe


@dataclass(frozen=True)
class Task:
    """Data, methods and seeds; ``recipe`` holds what differs from the defaults of a recipe."""

    data: str
    source: str = "de"
    target: str = "en"
    methods: tuple[str, ...] = ("base", *(f"{v}={s:g}" for v in VARIANTS for s in STRENGTHS))
    seeds: int = 3
    recipe: Mapping[str, Any] = field(default_factory=dict)
    test: str | None = None
    ntrex: str | None = None
    limit: int | None = None
    held_out: int | None = None
    turns: int = 1
    jobs: int = 1
    output_dir: Path = Path("taut-reproduce")

    def recipes(self) -> list[Recipe]:
        """A recipe for every method and seed.

        They go seed by seed, so that methods can be compared before all seeds are done.
        """
        if self.seeds < 1:
            raise ValueError(f"seeds must be at least 1, got {self.seeds}")
        methods = [Method.parse(method) for method in self.methods]
        if len(set(methods)) < len(methods):
            raise ValueError("a method is given twice")
        if Method("base") not in methods:
            raise ValueError("methods must include base, the one the others are compared with")
        first = Recipe(**self.recipe)
        return [
            replace(first, method=method, seed=seed)
            for seed in range(self.seeds)
            for method in methods
        ]


def named(facts: list[dict[str, Any]], corpus: Corpus) -> list[dict[str, Any]]:
    """The facts under the name of this corpus: runs on the same data may have used another."""
    return [{**one, "corpus": corpus.name} for one in facts]
