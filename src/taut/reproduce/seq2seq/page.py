"""Pages of Zhang et al. 2021: scores, what the constraints did, examples and curves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import mean, median

from taut.reproduce.result import Claim, Result, ResultTable
from taut.reproduce.seq2seq.compared_runs import (
    ComparedRuns,
    Facts,
    Number,
    every_run,
    kind,
    sensitivities,
)
from taut.reproduce.seq2seq.plots import plots
from taut.reproduce.seq2seq.printed_numbers import (
    MEASURES,
    VARIANTS,
    Printed,
    printed_bleu,
    printed_measures,
)


def translation_result(facts: Sequence[Facts], notes: Sequence[str] = ()) -> Result:
    """The page of translation runs."""
    found = ComparedRuns(facts)
    first = found.whole[0]
    source, target = first["languages"]
    tests = [name for name in first["scores"] if all(name in o["scores"] for o in found.whole)]
    numbers = {name: (lambda one, name=name: one["scores"][name]["bleu"]) for name in tests}
    rows = []
    for method in found.methods:
        row = [method, found.seeds(method)]
        for number in numbers.values():
            row += [*found.row(method, [number]),
                    "" if method == "base" else str(found.difference(method, number))]  # fmt: skip
        rows.append(row + found.row(method, [lambda one: one["valid_loss"]], 3))
    header = ["method", "seeds"]
    for name in tests:
        header += [f"BLEU, {name}", "difference from base"]
    tokens = first["recipe"].get("tokens", "bpe")
    characters = tokens == "characters"  # Table 3 of the paper
    paper = printed_bleu(source, target, tokens)
    claims = _claims(found, {"BLEU": (numbers[tests[0]], paper)})
    signature = first["scores"][tests[0]]["signature"]
    return _page(
        f"translation-{first['corpus']}-{source}-{target}" + "-characters" * characters,
        f"Translation{' by characters' * characters} after Zhang et al. 2021, "
        f"{source} → {target} ({first['corpus']})",
        found, claims,
        [ResultTable("BLEU", [*header, "validation loss"], rows)],
        {f"BLEU, {name}": number for name, number in numbers.items()},
        [f"BLEU by sacrebleu, {signature}; beams of 4, length penalty 0.6. The paper's "
         "numbers are of its own models and data.", *notes],
    )  # fmt: skip


def dialogue_result(facts: Sequence[Facts], notes: Sequence[str] = ()) -> Result:
    """The page of dialogue runs."""
    found = ComparedRuns(facts)
    numbers = {name: (lambda one, name=name: one["scores"]["test"][name]) for name in MEASURES}
    paper = printed_measures(facts[0]["corpus"])
    rows = []
    for name, number in numbers.items():
        row = [name, " / ".join(f"{v:g}" for v in paper[name].values.values()) or "–"]
        for method in found.methods:
            row += found.row(method, [number])
            row += [] if method == "base" else [str(found.difference(method, number))]
        rows.append([*row, found.whole[0]["scores"]["test"]["how"][name]])
    row = ["different replies", "–"]
    for method in found.methods:
        row += found.row(method, [_different]) + ([] if method == "base" else [""])
    rows.append([*row, "percent of all replies"])
    header = ["measure", "paper: transformer / VAR-I / II / III"]
    for method in found.methods:
        header += [method] if method == "base" else [method, "difference from base"]
    both = {name: (number, paper[name]) for name, number in numbers.items()}
    return _page(
        f"dialogue-{facts[0]['corpus']}",
        f"Dialogue after Zhang et al. 2021 ({facts[0]['corpus']})", found,
        _claims(found, both), [ResultTable("The nine measures", [*header, "how"], rows)],
        {"BLEU-4": numbers["BLEU-4"], **numbers, "different replies": _different},
        ["The paper's numbers are of its own models and data. Measures that stand in for others "
         "are named in the last column: their values are not comparable with the paper's.",
         *notes],
    )  # fmt: skip


def _different(one: Facts) -> float | None:
    value: float | None = one["scores"]["test"].get("different")
    return value


def _claims(found: ComparedRuns, measures: Mapping[str, tuple[Number, Printed]]) -> list[Claim]:
    """Claims that a variant improves on the base, at the strength with the best validation."""
    claims = []
    for variant in VARIANTS:
        methods = [method for method in found.methods if kind(method) == variant]
        losses = {method: found.values(method, lambda one: one["valid_loss"]) for method in methods}
        tried = {method: mean(values) for method, values in losses.items() if values}
        if not tried:
            continue
        sure = [method for method in tried if " of " not in found.seeds(method)]
        method = min(sure or tried, key=lambda method: tried[method])
        broken = any(" of " in found.seeds(name) for name in ("base", method))
        for name, (number, paper) in measures.items():
            change = found.difference(method, number)
            base = mean(found.values("base", number) or [math.nan])
            printed = [paper.values[one] for one in ("base", variant) if variant in paper.values]
            said = f"{printed[0]:g} → {printed[1]:g} on {paper.data}" if printed else "–"
            agrees: bool | None = None
            if printed and printed[1] <= printed[0]:
                name = f"{name}, where the paper has no gain"  # nothing to agree with
            elif change.p < 0.05 and not broken:  # survivors alone show nothing
                agrees = mean(change.values) > 0
            told = f"{base:.2f} → {base + mean(change.values or [math.nan]):.2f}; {change}"
            claims.append(
                Claim(f"{method} (best on validation) gains in {name}", said, told, agrees)
            )
    return claims


def _page(
    name: str, title: str, found: ComparedRuns, claims: list[Claim], tables: list[ResultTable],
    measures: dict[str, Number], remarks: list[str],
) -> Result:  # fmt: skip
    runs = [one for method in found.methods.values() for one in method]
    recipe = {k: v for k, v in runs[0]["recipe"].items() if k not in ("method", "seed")}
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
        ["Every method is trained from the same seeds on the same batches. Numbers are means, with "
         "the range of the seeds; differences are seed by seed, and p is that of Student's test of "
         "pairs, not corrected for the number of methods: of 20 that change nothing, one falls "
         "below 0.05. A gain is seen (yes), or a loss (no), if p is below 0.05; otherwise neither "
         "(–).",
         "",
         "Base has no penalty. VAR-I penalises attention matrices (AM), VAR-II also the linear "
         "maps of attention (LA), VAR-III also those of feed-forward networks (LF). The number "
         "after a method is its strength. Local constants are those of rows that see at least "
         "8 keys.",
         *(line for told in (_summed_up(claims), *remarks, *broken) if told
           for line in ("", _sentence(told)))],
    )  # fmt: skip


def _summed_up(claims: Sequence[Claim]) -> str:
    """What became of the paper's gains, in a sentence."""
    seen = [claim.agrees for claim in claims if "no gain" not in claim.statement]
    if not seen:
        return ""
    found = f"{seen.count(True)} of {len(seen)} gains are seen here, and {seen.count(False)} losses"
    return f"{found}." if any(seen) else f"{found}: no gain has a p below 0.05."


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text[:1].upper()}{text[1:]}."


def _minutes(runs: Sequence[Facts]) -> float:
    """The median: runs may have been paused, or share their machine."""
    return round(float(median(one["seconds"] for one in runs if "seconds" in one)) / 60, 1)


def _examples(runs: Sequence[Facts]) -> list[ResultTable]:
    """What the first run of each kind of method makes of the first sources."""
    firsts: dict[str, Facts] = {}
    for one in runs:
        if "failed" not in one:
            firsts.setdefault(kind(one["recipe"]["method"]), one)
    rows = []
    for number in range(3):
        shown = {method: one["scores"]["test"]["examples"] for method, one in firsts.items()}
        some = next(iter(shown.values()))
        if number < len(some):
            rows += [["source", some[number][0]], ["reference", some[number][1]]]
            rows += [[method, examples[number][2]] for method, examples in shown.items()]
    return [ResultTable("Examples, first seed", ["", ""], rows)] if rows else []
