"""What stands out in a record, in sentences that give their numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from taut._base.html_table import html_lines, html_table
from taut.audit.consequence.findings import LOOKED_FOR as IN_CONSEQUENCES
from taut.audit.consequence.findings import consequence_findings
from taut.audit.sinks import SINK
from taut.audit.statistics.constant_l2 import NEAR

if TYPE_CHECKING:
    from taut.audit.record import Record

HeadRow = dict[str, Any]
MOSTLY = 0.5  # share of a head's rows, or weight, above which it is a finding
FAR = 3.0  # times the median of all heads, from which on a head is far above the others
FEWEST = 4  # heads, of which a median says what is usual
STILL = 0.01  # below this mean constant a head hardly reacts, whatever the others do
WIDE = 150 * math.log(2)  # scores so far apart: the smaller weight is 0 in float32, below 2^-150
_LOOKED_FOR = (
    "NaN and infinite scores, attention that could not be seen, heads most of whose rows are near "
    f"the limit, heads at {FAR:g} times the median mean constant or more, heads that put all "
    f"weight on one key or the same on all, attention sinks, scores more than {WIDE:.0f} apart, "
    "and scores that grow with depth."
)


class Finding(NamedTuple):
    """What stands out, and what can be done about it."""

    kind: str
    text: str
    advice: str
    heads: tuple[str, ...]


class Findings(list[Finding]):
    """What stands out in a record: a list, which a notebook shows as a table.

    ``looked_for`` says in a sentence what would have stood out.
    """

    def __init__(self, found: Iterable[Finding] = (), looked_for: str = _LOOKED_FOR) -> None:
        super().__init__(found)
        self.looked_for = looked_for

    def _repr_html_(self) -> str:
        if not self:
            return html_lines(f"Nothing stands out. Looked for: {self.looked_for}")
        rows = [[each.kind, each.text, each.advice, f"{len(each.heads)}"] for each in self]
        return html_table(["finding", "what was seen", "what to do", "heads"], rows, numbers=(3,))


def findings(record: Record) -> Findings:
    """What stands out in a record, the gravest first."""
    rows = [row for row in record.heads if row["rows"]]
    looked_for = _LOOKED_FOR + (IN_CONSEQUENCES if record.has_consequence else "")
    found = Findings([*_broken(record), *_missed(record)], looked_for)
    if not rows:
        return found
    groups: dict[str, tuple[list[HeadRow], Callable[..., str], str]] = {
        "near the limit": ([r for r in rows if r["near"] > MOSTLY], _near, _TEMPERATURE),
        "far above the others": (_far(rows), _above, _TEMPERATURE),
        "wide scores": ([r for r in rows if r["range"] > WIDE], _wide, _CAP),
        "saturated": (
            [r for r in rows if r["median_upper"] < 0.01 and r["top"] > 0.99],
            _stuck,
            _CAP,
        ),
        "uniform": ([r for r in rows if r["evenness"] > 0.95], _uniform, _PRUNE),
        "sinks": ([r for r in rows if r["sink"] > MOSTLY], _sinks, ""),
    }
    for kind, (chosen, text, advice) in groups.items():
        if chosen:
            names = tuple(f"{row['layer']} head {row['head']}" for row in chosen)
            found.append(Finding(kind, text(chosen, rows), advice, names))
    found += [Finding(*each) for each in consequence_findings(record)]
    found += _growth(record)
    return found


def _of(chosen: list[HeadRow], rows: list[HeadRow], one: str, several: str) -> str:
    """How many heads, with what one or several of them do."""
    if len(chosen) == 1:
        return f"One of {len(rows)} heads {one}"
    return f"{len(chosen)} of {len(rows)} heads {several}"


def _near(chosen: list[HeadRow], rows: list[HeadRow]) -> str:
    worst = max(chosen, key=lambda row: row["near"])
    return (
        f"{_of(chosen, rows, 'has most of its rows', 'have most of their rows')} within "
        f"{1 - NEAR:.0%} of the limit ½ "
        f"({worst['layer']} head {worst['head']}: {worst['near']:.0%} of its rows): two keys share "
        "the weight, and small changes of their scores swap them."
    )


def _far(rows: list[HeadRow]) -> list[HeadRow]:
    if len(rows) < FEWEST:
        return []
    usual = median(row["mean"] for row in rows)
    return [row for row in rows if row["mean"] >= max(FAR * usual, STILL)]


def _above(chosen: list[HeadRow], rows: list[HeadRow]) -> str:
    most, usual = max(chosen, key=lambda row: row["mean"]), median(row["mean"] for row in rows)
    return (
        f"The mean constant of {len(chosen)} of {len(rows)} heads is at least {FAR:g} times the "
        f"median of all heads, {usual:.3f} ({most['layer']} head {most['head']}: "
        f"{most['mean']:.3f})."
    )


def _wide(chosen: list[HeadRow], rows: list[HeadRow]) -> str:
    widest = max(chosen, key=lambda row: row["range"])
    step = 2.0 ** (math.floor(math.log2(widest["range"] / 2)) - 7)  # of bfloat16, of 8 bits
    return (
        f"In {len(chosen)} of {len(rows)} heads the scores of a row lie more than {WIDE:.0f} apart "
        f"({widest['layer']} head {widest['head']}: {widest['range']:.0f}). The smallest weights "
        "are then 0 even in float32 and pass no gradient, and bfloat16 rounds such scores to "
        f"steps of {step:g} or more."
    )


def _stuck(chosen: list[HeadRow], rows: list[HeadRow]) -> str:
    widest = max(chosen, key=lambda row: row["range"])
    said = _of(chosen, rows, "puts", "put")
    return (
        f"{said} nearly all weight on one key, so that hardly anything moves it "
        f"(largest range of scores {widest['range']:.1f}, {widest['layer']} head {widest['head']})."
    )


def _uniform(chosen: list[HeadRow], rows: list[HeadRow]) -> str:
    said = _of(chosen, rows, "weighs", "weigh")
    return f"{said} all keys alike (entropy above 95% of its maximum)."


def _sinks(chosen: list[HeadRow], rows: list[HeadRow]) -> str:
    worst = max(chosen, key=lambda row: row["first"])
    first = (
        f" The first key has {worst['first']:.0%} in {worst['layer']} head {worst['head']}."
        if worst["first"] >= SINK
        else ""  # the sinks are other keys
    )
    keys = Counter(row["sink_key"] for row in chosen).most_common()
    shown = ", ".join(f"{key!r} ({number})" for key, number in keys[:3])
    more = f" and {len(keys) - 3} others" if len(keys) > 3 else ""
    return (
        f"{_of(chosen, rows, 'is an attention sink', 'are attention sinks')}: in most samples one "
        "key takes at least "
        f"{SINK:.0%} of the weight. Sinks by number of heads: {shown}{more}.{first}"
    )


_TEMPERATURE = (
    "A larger temperature lowers it. In training, taut.control.LocalConstant pulls the constants "
    "below a limit."
)
_CAP = "In training, taut.control.QKClip keeps the scores of a head below a limit."
_PRUNE = "Such heads average; they can often be removed."
_KERNEL = "It runs in a kernel that cannot be read; load the model with attn_implementation='sdpa'."
_HIDDEN = "taut cannot look into this operation; see 'How scores are seen' in the documentation."


def _growth(record: Record) -> list[Finding]:
    """Scores that grow with depth: the range of each layer against the first."""
    ranges = [float(layer.state.maxima["range"].max()) for layer in record.layers]
    if len(ranges) < 4 or not ranges[0] > 0:
        return []
    half = len(ranges) // 2
    early, late = max(ranges[:half]), max(ranges[half:])
    if late <= 2 * early:
        return []
    text = f"The range of scores grows with depth: {early:.1f} in the first half, {late:.1f} later."
    return [Finding("growing scores", text, _CAP, ())]


def _broken(record: Record) -> list[Finding]:
    rows = [row for row in record.heads if row["broken"]]
    if not rows:
        return []
    total = sum(row["broken"] for row in rows)
    names = tuple(f"{row['layer']} head {row['head']}" for row in rows)
    text = f"{total} rows hold NaN or infinite scores, in {len(rows)} heads; they are not counted."
    return [Finding("broken scores", text, "Try a wider type: --dtype float32.", names)]


def _missed(record: Record) -> list[Finding]:
    if not record.missed:
        return []
    names = tuple(sorted({path for path, _ in record.missed}))
    modules = "module" if len(names) == 1 else "modules"
    text = f"Attention in {len(names)} {modules} could not be seen: {', '.join(names[:5])}."
    fused = all(_is_fused_attention(operation) for _, operation in record.missed)
    return [Finding("missed", text, _KERNEL if fused else _HIDDEN, names)]


def _is_fused_attention(operation: str) -> bool:
    """Whether a missed operation is a kernel, and not a sentence about what could not be seen."""
    return " " not in operation and ("attention" in operation or "attn" in operation)
