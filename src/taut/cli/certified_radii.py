"""Certified radii on the terminal, and certified accuracy against the radius as a figure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from taut._base.terminal_text import cells, say

if TYPE_CHECKING:
    from taut.networks import ModelCertificate


def numbers_in(path: Path | None) -> tuple[int, ...] | None:
    """The whole numbers of a file, one a line."""
    if path is None:
        return None
    try:
        return tuple(int(line) for line in path.read_text().split())
    except ValueError as error:
        raise ValueError(f"--labels takes a file of whole numbers, one a line: {error}") from None


def draw_shares(found: ModelCertificate, path: Path) -> None:
    """Certified accuracy, or without labels the share of inputs, against the radius."""
    from taut.reproduce import Curve, Plot, save_figure

    curves = []
    for each in found.classes:
        radii, shares = zip(*each.shares(found.settings.labels), strict=True)
        curves.append(Curve(each.name, list(radii), list(shares)))
    told = _shares_are(found)
    save_figure([Plot(told.capitalize(), "radius", told, curves)], path)


def _shares_are(found: ModelCertificate) -> str:
    known = found.settings.labels is not None
    return "certified accuracy" if known else "inputs whose class is certified"


def _show_shares(found: ModelCertificate) -> None:
    """What part of the inputs keeps its class within each radius."""
    from rich.console import Console
    from rich.table import Table

    told = _shares_are(found)
    for each in found.classes:
        if len(each.attack) > 1 and each.certified.radius.any():
            table = Table("radius", told, title=f"{told.capitalize()}, in {each.name}")
            for radius, share in each.shares(found.settings.labels):
                table.add_row(f"{radius:g}", f"{share:.1%}")
            Console().print(table)


def show_radii(found: ModelCertificate) -> None:
    """The certified radius of each class in every norm, beside what an attack needs."""
    from rich.console import Console
    from rich.table import Table

    if found.inputs is None or not found.classes:
        return
    heads = ["input", "class", "margin", "norm", "certified radius (lower)", "attack (upper)"]
    decided = [f"within {found.settings.radius:g}"] if found.classes[0].verdicts else []
    estimated = any(each.certified.rounding == "estimated" for each in found.classes)
    rounding = "rounding estimated" if estimated else "rounding proved"
    table = Table(*heads, *decided, title=f"How far each input may move ({rounding})")
    for index, label in enumerate(found.inputs.labels):
        for norm, each in enumerate(found.classes):
            first = each.certified
            lead = (label[:40], str(first.predicted[index]), f"{first.margin[index]:.4g}")
            start = ("", "", "") if norm else lead
            verdict = [each.verdicts[index].verdict] if decided else []
            table.add_row(*cells(*start, each.name, *found.radius(norm, index), *verdict))
    Console().print(table)
    _show_verdicts(found)
    _show_shares(found)


def _show_verdicts(found: ModelCertificate) -> None:
    """What was tried where the certified radius did not answer."""
    assert found.inputs is not None
    for each in found.classes:
        for label, verdict in zip(found.inputs.labels, each.verdicts, strict=False):
            if verdict.details is not None:
                say(f"{label[:40]} in {each.name}: {verdict.told}")
