"""Answers of a run to tests, and what they score."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from taut._base.files import write_whole
from taut.reproduce.seq2seq.corpus import Pair
from taut.reproduce.seq2seq.decode import answers
from taut.reproduce.seq2seq.recipe import Recipe
from taut.reproduce.seq2seq.run_folder import PIECES, best_model
from taut.reproduce.seq2seq.subwords import Subwords

Scorer = Callable[[list[str], list[str]], dict[str, Any]]
EXAMPLES = 5


def scores(
    facts: dict[str, Any], tests: Mapping[str, Sequence[Pair]], recipe: Recipe, folder: Path,
    score: Scorer, latest: bool,
) -> dict[str, Any]:  # fmt: skip
    """Answers of the best weights to the sources of each test, and what they score."""
    model = best_model(recipe, folder, facts["best_step"])
    subwords = Subwords.load(folder / PIECES)
    found: dict[str, Any] = {}
    for name, pairs in tests.items():
        sources = [source for source, _ in pairs]
        made = answers(model, subwords, sources, longest=recipe.longest, latest=latest)
        references = [target for _, target in pairs]
        write_whole("".join(f"{text}\n" for text in made), folder / f"answers-{name}.txt")
        write_whole("".join(f"{text}\n" for text in references), folder / f"references-{name}.txt")
        examples = [[*pair, text] for pair, text in zip(pairs, made, strict=True)][:EXAMPLES]
        marked = {"examples": examples, "of": mark(pairs, score)}
        found[name] = {**score(made, references), **marked}
    return found


def scored(found: dict[str, Any] | None, name: str, pairs: Sequence[Pair], score: Scorer) -> bool:
    """Whether scores are of these pairs: those of the corpus decide its folder, others do not."""
    if found is None or (name != "test" and "of" not in found):
        return False
    return "of" not in found or bool(found["of"] == mark(pairs, score))


def mark(pairs: Sequence[Pair], score: Scorer) -> str:
    """A checksum of the scored pairs and the name of the scorer."""
    how = (
        f"{getattr(score, '__module__', '')}.{getattr(score, '__qualname__', type(score).__name__)}"
    )
    text = json.dumps([how, [list(pair) for pair in pairs]], ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
