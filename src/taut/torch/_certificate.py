"""Certificate: the bound, the evidence beside it, and the tree that it is made of."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass, field
from typing import Any

from taut._bound import Bound
from taut.torch._frame import Head
from taut.torch._numbers import Numbers
from taut.torch._region import Region
from taut.torch._tree import Node


@dataclass(frozen=True)
class Certificate:
    """What :func:`certify` found.

    Attributes
    ----------
    bound
        Lipschitz constant from above, one for each given input; ``.max()`` for all of them.
    measured
        The same from below, by power iteration; None if it was not asked for.
    tree
        The modules with their own constants.
    """

    bound: Bound
    measured: Bound | None
    tree: Node
    output: Region = field(repr=False)
    head: Head | None = field(repr=False)
    eps: float = field(repr=False)

    @property
    def rounding(self) -> Numbers:
        """How far the network as executed can be from exact arithmetic, to first order.

        For two inputs of the domain the outputs differ by at most bound·distance + 2·rounding.
        """
        return self.output.err

    def rounding_of(self, eps: float) -> Numbers:
        """The same for a network that computes in another precision."""
        return self.output.err * (eps / self.eps)

    def rows(self, depth: int | None = None) -> list[dict[str, Any]]:
        """The table: module, class, bound, rule and share of the logarithm of the total."""
        return [
            {
                "module": line.path,
                "depth": line.depth,
                "class": line.node.kind,
                "bound": line.node.worst,
                "rule": line.node.rule,
                "theorem": list(line.node.theorem),
                "share": line.share,
            }
            for line in self.tree.walk()
            if depth is None or line.depth <= depth
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers and words, for JSON; what is infinite is null."""
        measured = None if self.measured is None else [float(x) for x in self.measured.lower]
        return {
            "upper": [_finite(x) for x in self.bound.upper],
            "measured": measured,
            "rounding": [_finite(x) for x in self.rounding],
            "norm": str(self.bound.norm),
            "domain": self.bound.domain,
            "theorem": list(self.bound.theorem),
            "modules": [{**row, "bound": _finite(row["bound"])} for row in self.rows()],
        }

    def table(self, depth: int | None = 2) -> str:
        """The tree as text, as deep as asked for."""
        rows = self.rows(depth)
        names = ["  " * row["depth"] + (row["module"] or row["class"]) for row in rows]
        wide = max(len(name) for name in [*names, "module"])
        lines = [f"{'module':<{wide}}  {'bound':>10}  {'share':>6}  rule"]
        for name, row in zip(names, rows, strict=True):
            share = f"{row['share']:.1%}"
            lines.append(f"{name:<{wide}}  {shown(row['bound']):>10}  {share:>6}  {row['rule']}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.headline()}\n{self.table()}"

    def headline(self) -> str:
        """The result in a sentence or two."""
        worst = float(self.bound.upper.max())
        many = len(self.bound.upper)
        of = f", the worst of {many} inputs" if many > 1 else ""
        where = f"in {self.bound.norm}, {self.bound.domain}{of}"
        text = f"Lipschitz constant at most {shown(worst)} {where}"
        if math.isinf(worst):
            text = (
                f"No finite bound {where}: attention is not Lipschitz for tokens of any length. "
                "Give a Ball or inputs, or put a norm layer before it."
            )
        if self.measured is not None:
            text += f"\nmeasured: at least {float(self.measured.lower.max()):.4g}"
        lost = float(self.rounding.max())
        if math.isinf(lost):
            return text + "\nrounding of the network as executed: no bound"
        return text + f"\nrounding of the network as executed: at most {shown(lost)} in the output"

    @staticmethod
    def shown(value: float) -> str:
        """A bound in four digits, rounded up."""
        return shown(value)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def shown(x: float) -> str:
    """Four digits, rounded up."""
    if not math.isfinite(x):
        return "none"
    if x == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(x)) - 3)
    shown = float(f"{x:.4g}")
    return f"{x:.4g}" if shown >= x else f"{x + unit:.4g}"
