"""One run: learn pieces, train, take the best weights, decode, score, and write the facts down."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from taut._files import write_whole
from taut._json import SEAL, read_json
from taut._json import checksum as checksum_of_facts
from taut.sequences._bars import without_bars
from taut.sequences._batches import Encoded
from taut.sequences._checkpoint import Progress, best_name
from taut.sequences._corpus import Corpus, Pair
from taut.sequences._decode import answers
from taut.sequences._log import lines
from taut.sequences._models import build
from taut.sequences._needed import for_training
from taut.sequences._read import checksum
from taut.sequences._recipe import Recipe
from taut.sequences._scoring import score_translations
from taut.sequences._sensitivity import sensitivity
from taut.sequences._subwords import Subwords
from taut.sequences._train import Data, train
from taut.sequences._ways import prepared

Scorer = Callable[[list[str], list[str]], dict[str, Any]]
FACTS, OWNER, PIECES = "facts.json", "recipe.json", "pieces.json"
EXAMPLES = 5


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
        Of this run alone: facts, answers, log, weights and checkpoints. One of another run is
        refused.
    score
        From answers and references to a dict of scores that JSON can hold, with a ``headline`` to
        print: :func:`score_translations`, :func:`score_replies`, or one's own.
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
    _own(folder, recipe, corpus)
    facts = _read(file)
    if facts is None:
        facts = _trained(corpus, recipe, folder)
    missing = {} if "failed" in facts else {
        name: pairs for name, pairs in asked.items()
        if not _scored(facts["scores"].get(name), name, pairs, score)
    }  # fmt: skip
    if PartialState().is_main_process:
        if missing:
            facts["scores"] |= _scores(facts, missing, recipe, folder, score, corpus.latest)
        if missing or not file.exists():
            told = json.loads(json.dumps(facts))  # as it is read again: tuples are lists
            told[SEAL] = checksum_of_facts(told)
            write_whole(json.dumps(told, indent=1, ensure_ascii=False) + "\n", file)
    PartialState().wait_for_everyone()
    return _read(file) or {}


def _own(folder: Path, recipe: Recipe, corpus: Corpus) -> None:
    """Write down whose folder this is; that of another run is no place for this one."""
    with for_training():
        from accelerate import PartialState

    told = _identity(corpus, recipe)
    known = _read(folder / FACTS) or _read(folder / OWNER)
    if known is None and PartialState().is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(json.dumps(told, indent=1) + "\n", folder / OWNER)
    elif known is not None:
        other = [name for name, value in told["recipe"].items() if known["recipe"][name] != value]
        for name, said in (("checksum", "data"), ("latest", "latest"), ("processes", "processes")):
            other += [said] if known.get(name, told[name]) != told[name] else []
        if other:
            raise ValueError(f"{folder} is of a run with other {', '.join(other)}: give another")
    PartialState().wait_for_everyone()


def _identity(corpus: Corpus, recipe: Recipe) -> dict[str, Any]:
    """What decides a run; its batches also depend on how many processes share them."""
    with for_training():
        from accelerate import PartialState

    return {"recipe": recipe.to_dict(), "checksum": checksum(corpus), "latest": corpus.latest,
            "processes": PartialState().num_processes}  # fmt: skip


def _read(file: Path) -> dict[str, Any] | None:
    """What was written down; facts of runs from before there were checksums have none."""
    if not file.exists():
        return None
    try:
        found: dict[str, Any] = read_json(file)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read ({error}): remove it to run again") from None
    if found.pop(SEAL, mark := checksum_of_facts(found)) != mark:
        raise ValueError(f"{file} was damaged, or edited by hand: remove it to run again")
    return found


def _trained(corpus: Corpus, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """Train, and say how it went and what it did."""
    subwords = _subwords(corpus, recipe, folder)
    data = Data(
        *(_encoded(subwords, part, recipe, corpus.latest) for part in (corpus.train, corpus.valid))
    )
    model = build(
        recipe.size, len(subwords), longest=recipe.longest, family=recipe.family, seed=recipe.seed
    )
    prepared(model, recipe.way)  # what is measured first is what is trained
    full = [len(row) == recipe.longest for pair in data.train for row in pair]
    facts: dict[str, Any] = {
        **_identity(corpus, recipe), "corpus": corpus.name,
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
    best = _best(recipe, folder, progress.best_step)
    course = _course(progress, folder)
    return {**facts, **course, "before": before, "after": sensitivity(best, data.valid),
            "scores": {}}  # fmt: skip


def _best(recipe: Recipe, folder: Path, step: int) -> Any:
    """The model with the weights of the best validation."""
    with for_training():
        from accelerate import PartialState
        from transformers import AutoModelForSeq2SeqLM

    model = AutoModelForSeq2SeqLM.from_pretrained(folder / best_name(step))
    prepared(model, recipe.way)
    return model.to(PartialState().device)


def _subwords(corpus: Corpus, recipe: Recipe, folder: Path) -> Subwords:
    """The pieces, learnt once for a run."""
    with for_training():
        from accelerate import PartialState

    file = folder / PIECES
    if not file.exists() and PartialState().is_main_process:
        texts = (text for pair in corpus.train for text in pair)
        Subwords.learn(texts, recipe.tokens, recipe.vocabulary).save(file)
    PartialState().wait_for_everyone()
    return Subwords.load(file)


def _encoded(
    subwords: Subwords, pairs: Sequence[Pair], recipe: Recipe, latest: bool
) -> list[Encoded]:
    sources = subwords.encode([source for source, _ in pairs], recipe.longest, latest=latest)
    targets = subwords.encode([target for _, target in pairs], recipe.longest)
    return list(zip(sources, targets, strict=True))


def _course(progress: Progress, folder: Path) -> dict[str, Any]:
    """How the training went, by its log."""
    log = lines(folder / "log.jsonl")
    gradients = [line["gradient"] for line in log if "gradient" in line]
    paces = [line["step_seconds"] for line in log if "step_seconds" in line]
    scores = [
        value for line in log for name, value in line.items() if name.endswith("largest_score")
    ]
    return {
        "steps": progress.step, "seconds": round(progress.seconds, 1),
        "step_seconds": statistics.median(paces),
        "valid_loss": progress.best, "best_step": progress.best_step,
        "gradient_largest": max(gradients), "gradient_median": statistics.median(gradients),
        "score_largest": max(scores, default=None),
        "curve": [[ln["step"], ln["valid/loss"]] for ln in log if "valid/loss" in ln],
    }  # fmt: skip


def _scores(
    facts: dict[str, Any], tests: Mapping[str, Sequence[Pair]], recipe: Recipe, folder: Path,
    score: Scorer, latest: bool,
) -> dict[str, Any]:  # fmt: skip
    """Answers of the best weights to the sources of each test, and what they score."""
    model = _best(recipe, folder, facts["best_step"])
    subwords = Subwords.load(folder / PIECES)
    found: dict[str, Any] = {}
    for name, pairs in tests.items():
        sources = [source for source, _ in pairs]
        made = answers(model, subwords, sources, longest=recipe.longest, latest=latest)
        references = [target for _, target in pairs]
        write_whole("".join(f"{text}\n" for text in made), folder / f"answers-{name}.txt")
        write_whole("".join(f"{text}\n" for text in references), folder / f"references-{name}.txt")
        examples = [[*pair, text] for pair, text in zip(pairs, made, strict=True)][:EXAMPLES]
        marked = {"examples": examples, "of": _mark(pairs, score)}
        found[name] = {**score(made, references), **marked}
    return found


def _scored(found: dict[str, Any] | None, name: str, pairs: Sequence[Pair], score: Scorer) -> bool:
    """Whether scores are of these pairs: those of the corpus decide its folder, others do not."""
    if found is None or (name != "test" and "of" not in found):
        return False
    return "of" not in found or bool(found["of"] == _mark(pairs, score))


def _mark(pairs: Sequence[Pair], score: Scorer) -> str:
    """Of what was scored and how; a scorer is known by its name."""
    how = (
        f"{getattr(score, '__module__', '')}.{getattr(score, '__qualname__', type(score).__name__)}"
    )
    text = json.dumps([how, [list(pair) for pair in pairs]], ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
