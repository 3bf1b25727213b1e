"""S4's experiments: transformers under orthogonality constraints, for translation and dialogue."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import mean
from typing import Any

from taut.reproduce._compared import Compared, Facts, curves, sensitivities, spread
from taut.reproduce._result import Claim, Curve, Plot, Result, Table

# S4, Table 1 (subword level): BLEU of the transformer, VAR-I, VAR-II and VAR-III.
PAPER_BLEU = {
    "de-en": (34.68, 34.87, 34.92, 35.20), "ro-en": (32.36, 32.68, 32.63, 32.44),
    "en-vi": (28.43, 30.16, 30.51, 30.42), "en-id": (47.40, 48.09, 48.05, 48.33),
    "en-et": (14.17, 14.83, 15.06, 14.87), "en-mk": (13.96, 14.74, 14.70, 14.62),
}  # fmt: skip
# S4, Table 4: the nine measures for DailyDialog, likewise.
PAPER_DIALOGUE = {
    "BLEU-1": (12.1, 13.5, 13.3, 14.0), "BLEU-4": (6.22, 6.70, 6.52, 7.11),
    "METEOR": (8.23, 8.43, 8.39, 8.72), "ROUGE-L": (21.1, 21.4, 21.7, 21.7),
    "CIDEr": (79.3, 79.2, 79.6, 82.1), "SkipThought": (66.9, 67.1, 67.1, 67.2),
    "embedding average": (84.9, 85.7, 85.6, 85.5), "vector extrema": (53.1, 53.3, 53.4, 53.2),
    "greedy matching": (72.1, 72.3, 72.6, 72.2),
}  # fmt: skip
VARIANTS = ("VAR-I", "VAR-II", "VAR-III")
STRENGTHS = (1e-6, 1e-8, 1e-10)


@dataclass(frozen=True)
class Task:
    """What is run: data, ways, seeds, and the numbers of a recipe that are not the usual ones."""

    data: str
    source: str = "de"
    target: str = "en"
    ways: tuple[str, ...] = ("base", *(f"{v}={s:g}" for v in VARIANTS for s in STRENGTHS))
    seeds: int = 3
    recipe: Mapping[str, Any] = field(default_factory=dict)
    ntrex: str | None = None
    limit: int | None = None
    turns: int = 1
    jobs: int = 1
    output_dir: Path = Path("taut-reproduce")


def translation(task: Task) -> Result:
    """Train every way from every seed on parallel text, and compare their BLEU."""
    from taut.sequences import ntrex, read_corpus, run_all
    from taut.sequences._scoring import score_translations

    corpus = read_corpus(task.data, task.source, task.target, limit=task.limit)
    tests = {"NTREX": ntrex(task.ntrex, task.source, task.target)} if task.ntrex else {}
    facts = run_all(
        _recipes(task), corpus, task.output_dir / "runs", score_translations, tests=tests,
        jobs=task.jobs,
    )  # fmt: skip
    return translation_result(facts, corpus.notes)


def dialogue(task: Task) -> Result:
    """Train every way from every seed on dialogues, and compare the nine measures."""
    from taut.sequences import read_dialogues, run_all
    from taut.sequences._scoring import score_replies

    corpus = read_dialogues(task.data, turns=task.turns, limit=task.limit)
    facts = run_all(_recipes(task), corpus, task.output_dir / "runs", score_replies, jobs=task.jobs)
    return dialogue_result(facts, corpus.notes)


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


def translation_result(facts: Sequence[Facts], notes: Sequence[str] = ()) -> Result:
    """The page of translation runs."""
    found = Compared(facts)
    first = facts[0]
    source, target = first["languages"]
    tests = list(next(one["scores"] for one in facts if "failed" not in one))
    numbers = {name: (lambda one, name=name: one["scores"][name]["bleu"]) for name in tests}
    rows = []
    for way in found.ways:
        row = [way, str(len(found.ways[way]))]
        for number in numbers.values():
            row += [*found.row(way, [number]),
                    "" if way == "base" else str(found.difference(way, number))]  # fmt: skip
        rows.append(row + found.row(way, [lambda one: one["valid_loss"]], 3))
    header = ["way", "seeds"]
    for name in tests:
        header += [f"BLEU, {name}", "less the base's"]
    paper = PAPER_BLEU.get(f"{source}-{target}")
    claims = _claims(found, {"BLEU": (numbers[tests[0]], paper)})
    signature = next(one for one in facts if "failed" not in one)["scores"][tests[0]]["signature"]
    return _page(
        f"translation-{first['corpus']}-{source}-{target}",
        f"Translation, {source} → {target} ({first['corpus']})", found, claims,
        [Table("BLEU", [*header, "validation loss"], rows)], numbers[tests[0]], "BLEU",
        [f"BLEU by sacrebleu, {signature}; beams of 4, length penalty 0.6.", *notes],
    )  # fmt: skip


def dialogue_result(facts: Sequence[Facts], notes: Sequence[str] = ()) -> Result:
    """The page of dialogue runs."""
    found = Compared(facts)
    whole = next(one for one in facts if "failed" not in one)["scores"]["test"]
    numbers = {
        name: (lambda one, name=name: one["scores"]["test"][name]) for name in PAPER_DIALOGUE
    }
    rows = []
    for name, number in numbers.items():
        row = [name, " / ".join(f"{v:g}" for v in PAPER_DIALOGUE[name])]
        for way in found.ways:
            row += found.row(way, [number])
            row += [] if way == "base" else [str(found.difference(way, number))]
        rows.append([*row, whole["how"][name]])
    header = ["measure", "paper: transformer / VAR-I / II / III"]
    for way in found.ways:
        header += [way] if way == "base" else [way, "less the base's"]
    both = {name: (number, PAPER_DIALOGUE[name]) for name, number in numbers.items()}
    return _page(
        f"dialogue-{facts[0]['corpus']}", f"Dialogue ({facts[0]['corpus']})", found,
        _claims(found, both), [Table("The nine measures", [*header, "how"], rows)],
        numbers["BLEU-4"], "BLEU-4",
        ["Measures that stand in for others are named in the last column: their values are not "
         "comparable with the paper's.", *notes],
    )  # fmt: skip


def _claims(found: Compared, measures: Mapping[str, tuple[Any, Any]]) -> list[Claim]:
    """That a variant does better, by the strength that did best on validation for it."""
    claims = []
    for place, variant in enumerate(VARIANTS, 1):
        ways = [way for way in found.ways if way.split(", ")[0] == variant]
        losses = {way: found.values(way, lambda one: one["valid_loss"]) for way in ways}
        tried = {way: mean(values) for way, values in losses.items() if values}
        if not tried:
            continue
        way = min(tried, key=lambda way: tried[way])
        for name, (number, paper) in measures.items():
            change = found.difference(way, number)
            said = "gains" if paper is None else f"{paper[0]:g} → {paper[place]:g}"
            base = mean(found.values("base", number) or [math.nan])
            agrees = None
            if change.values and not (mean(change.values) > 0 and not change.p < 0.05):
                agrees = mean(change.values) > 0
            told = f"{base:.2f} → {base + mean(change.values or [math.nan]):.2f}; {change}"
            claims.append(Claim(f"{way} (best on validation) gains in {name}", said, told, agrees))
    return claims


def _page(
    name: str, title: str, found: Compared, claims: list[Claim], tables: list[Table], number: Any,
    measure: str, remarks: list[str],
) -> Result:  # fmt: skip
    base = mean(found.values("base", number) or [math.nan])
    constants = [
        Curve(way, found.values(way, lambda one: one["after"].get("constant_mean")),
              found.values(way, number)[: len(found.values(
                  way, lambda one: one["after"].get("constant_mean")))])
        for way in found.ways
    ]  # fmt: skip
    strengths = []
    for variant in VARIANTS:
        ways = [way for way in found.ways if way.split(", ")[0] == variant]
        points = sorted((float(way.split(", ")[1]), mean(found.values(way, number)) - base)
                        for way in ways if found.values(way, number))  # fmt: skip
        if points:
            strengths.append(Curve(variant, [x for x, _ in points], [y for _, y in points]))
    plots = [curves(found)]
    if strengths:
        plots.append(Plot(f"{measure} less the base's, mean", "λ", measure, strengths, log_x=True))
    plots.append(Plot(f"{measure} and sensitivity, run by run", "mean local constant", measure,
                      constants))  # fmt: skip
    runs = [one for way in found.ways.values() for one in way]
    recipe = {k: v for k, v in runs[0]["recipe"].items() if k not in ("way", "seed")}
    broken = [f"Broke down: {text}." for text in found.failed()]
    examples = _examples(runs)
    return Result(
        name, title,
        {"pairs": runs[0]["pairs"], "parameters": runs[0]["parameters"], **recipe,
         "minutes of a run": spread([one["seconds"] / 60 for one in runs if "seconds" in one], 1)},
        claims, [*tables, sensitivities(found), *examples], plots,
        ["Each way is trained from the same seeds on the same batches. Numbers are means, with the "
         "range of the seeds; differences are seed by seed, and p is that of Student's test of "
         "pairs. A gain counts as seen if p is below 0.05, as not seen if the mean is not above 0, "
         "and as undecided otherwise.", "", *remarks, *broken],
    )  # fmt: skip


def _examples(runs: Sequence[Facts]) -> list[Table]:
    """What the first run of each way makes of the first sources."""
    firsts: dict[str, Facts] = {}
    for one in runs:
        if "failed" not in one:
            firsts.setdefault(one["recipe"]["way"], one)
    rows = []
    for number in range(3):
        shown = {way: one["scores"]["test"]["examples"] for way, one in firsts.items()}
        some = next(iter(shown.values()))
        if number < len(some):
            rows += [["source", some[number][0]], ["reference", some[number][1]]]
            rows += [[way, examples[number][2]] for way, examples in shown.items()]
    return [Table("Examples, first seed", ["", ""], rows)] if rows else []
