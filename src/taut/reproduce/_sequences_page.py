"""Pages of S4's experiments: scores, what the constraints did, examples and curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median

from taut.reproduce._compared import Compared, Facts, Number, every_run, kind, sensitivities
from taut.reproduce._result import Claim, Result, Table
from taut.reproduce._s4 import MEASURES, VARIANTS, Printed, printed_bleu, printed_measures
from taut.reproduce._sequences_plots import plots


def translation_result(facts: Sequence[Facts], notes: Sequence[str] = ()) -> Result:
    """The page of translation runs."""
    found = Compared(facts)
    first = found.whole[0]
    source, target = first["languages"]
    tests = [name for name in first["scores"] if all(name in o["scores"] for o in found.whole)]
    numbers = {name: (lambda one, name=name: one["scores"][name]["bleu"]) for name in tests}
    rows = []
    for way in found.ways:
        row = [way, found.seeds(way)]
        for number in numbers.values():
            row += [*found.row(way, [number]),
                    "" if way == "base" else str(found.difference(way, number))]  # fmt: skip
        rows.append(row + found.row(way, [lambda one: one["valid_loss"]], 3))
    header = ["way", "seeds"]
    for name in tests:
        header += [f"BLEU, {name}", "less the base's"]
    paper = printed_bleu(source, target, first["recipe"].get("tokens", "bpe"))
    claims = _claims(found, {"BLEU": (numbers[tests[0]], paper)})
    signature = first["scores"][tests[0]]["signature"]
    return _page(
        f"translation-{first['corpus']}-{source}-{target}",
        f"Translation, {source} → {target} ({first['corpus']})", found, claims,
        [Table("BLEU", [*header, "validation loss"], rows)],
        {f"BLEU, {name}": number for name, number in numbers.items()},
        [f"BLEU by sacrebleu, {signature}; beams of 4, length penalty 0.6. The paper's "
         "numbers are of its own models and data.", *notes],
    )  # fmt: skip


def dialogue_result(facts: Sequence[Facts], notes: Sequence[str] = ()) -> Result:
    """The page of dialogue runs."""
    found = Compared(facts)
    numbers = {name: (lambda one, name=name: one["scores"]["test"][name]) for name in MEASURES}
    paper = printed_measures(facts[0]["corpus"])
    rows = []
    for name, number in numbers.items():
        row = [name, " / ".join(f"{v:g}" for v in paper[name].values.values()) or "–"]
        for way in found.ways:
            row += found.row(way, [number])
            row += [] if way == "base" else [str(found.difference(way, number))]
        rows.append([*row, found.whole[0]["scores"]["test"]["how"][name]])
    row = ["different replies", "–"]
    for way in found.ways:
        row += found.row(way, [_different]) + ([] if way == "base" else [""])
    rows.append([*row, "percent of all replies"])
    header = ["measure", "paper: transformer / VAR-I / II / III"]
    for way in found.ways:
        header += [way] if way == "base" else [way, "less the base's"]
    both = {name: (number, paper[name]) for name, number in numbers.items()}
    return _page(
        f"dialogue-{facts[0]['corpus']}", f"Dialogue ({facts[0]['corpus']})", found,
        _claims(found, both), [Table("The nine measures", [*header, "how"], rows)],
        {"BLEU-4": numbers["BLEU-4"], **numbers, "different replies": _different},
        ["The paper's numbers are of its own models and data. Measures that stand in for others "
         "are named in the last column: their values are not comparable with the paper's.",
         *notes],
    )  # fmt: skip


def _different(one: Facts) -> float | None:
    value: float | None = one["scores"]["test"].get("different")
    return value


def _claims(found: Compared, measures: Mapping[str, tuple[Number, Printed]]) -> list[Claim]:
    """That a variant does better, by the strength that did best on validation for it."""
    claims = []
    for variant in VARIANTS:
        ways = [way for way in found.ways if kind(way) == variant]
        losses = {way: found.values(way, lambda one: one["valid_loss"]) for way in ways}
        tried = {way: mean(values) for way, values in losses.items() if values}
        if not tried:
            continue
        sure = [way for way in tried if " of " not in found.seeds(way)]
        way = min(sure or tried, key=lambda way: tried[way])
        broken = any(" of " in found.seeds(name) for name in ("base", way))
        for name, (number, paper) in measures.items():
            change = found.difference(way, number)
            base = mean(found.values("base", number) or [math.nan])
            printed = [paper.values[one] for one in ("base", variant) if variant in paper.values]
            said = f"{printed[0]:g} → {printed[1]:g} on {paper.data}" if printed else "–"
            agrees: bool | None = None
            if printed and printed[1] <= printed[0]:
                name = f"{name}, where the paper has no gain"  # nothing to agree with
            elif change.p < 0.05 and not broken:  # survivors alone show nothing
                agrees = mean(change.values) > 0
            told = f"{base:.2f} → {base + mean(change.values or [math.nan]):.2f}; {change}"
            claims.append(Claim(f"{way} (best on validation) gains in {name}", said, told, agrees))
    return claims


def _page(
    name: str, title: str, found: Compared, claims: list[Claim], tables: list[Table],
    measures: dict[str, Number], remarks: list[str],
) -> Result:  # fmt: skip
    runs = [one for way in found.ways.values() for one in way]
    recipe = {k: v for k, v in runs[0]["recipe"].items() if k not in ("way", "seed")}
    broken = [f"Broke down: {text}" for text in found.failed()]
    shares = [one["cut"] for one in runs if "cut" in one]
    measure, number = next(iter(measures.items()))
    return Result(
        name, title,
        {"pairs": runs[0]["pairs"], "parameters": runs[0]["parameters"], **recipe,
         "data's checksum": runs[0]["checksum"], "share of texts cut": round(max(shares), 4),
         "minutes of a run, median": _minutes(runs)},
        claims, [*tables, sensitivities(found), *_examples(runs), every_run(found, measures)],
        plots(found, number, measure.split(",")[0]),
        ["Each way is trained from the same seeds on the same batches. Numbers are means, with the "
         "range of the seeds; differences are seed by seed, and p is that of Student's test of "
         "pairs, not corrected for the number of ways: of 20 that change nothing, one falls below "
         "0.05. A gain is seen (yes), or a loss (no), if p is below 0.05; otherwise neither (–).",
         *(line for told in (_summed_up(claims), *remarks, *broken) if told
           for line in ("", _sentence(told)))],
    )  # fmt: skip


def _summed_up(claims: Sequence[Claim]) -> str:
    """What became of the paper's gains, in a sentence."""
    seen = [claim.agrees for claim in claims if "no gain" not in claim.statement]
    if not seen:
        return ""
    found = f"{seen.count(True)} of {len(seen)} gains are seen here, and {seen.count(False)} losses"
    return f"{found}." if any(seen) else f"{found}: the paper's gain does not show in these runs."


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text[:1].upper()}{text[1:]}."


def _minutes(runs: Sequence[Facts]) -> float:
    """The median: runs may have been paused, or share their machine."""
    return round(float(median(one["seconds"] for one in runs if "seconds" in one)) / 60, 1)


def _examples(runs: Sequence[Facts]) -> list[Table]:
    """What the first run of each kind of way makes of the first sources."""
    firsts: dict[str, Facts] = {}
    for one in runs:
        if "failed" not in one:
            firsts.setdefault(kind(one["recipe"]["way"]), one)
    rows = []
    for number in range(3):
        shown = {way: one["scores"]["test"]["examples"] for way, one in firsts.items()}
        some = next(iter(shown.values()))
        if number < len(some):
            rows += [["source", some[number][0]], ["reference", some[number][1]]]
            rows += [[way, examples[number][2]] for way, examples in shown.items()]
    return [Table("Examples, first seed", ["", ""], rows)] if rows else []
