"""Certificate: the bound, the evidence beside it, and the tree that it is made of."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from taut._base.bound import Bound
from taut._base.html_table import html_lines, html_table
from taut._base.rounding import Numbers
from taut.networks.module_tree import ModuleNode
from taut.networks.region import Region

# A bound is called vacuous from that many times what is known of the derivative: a convention.
VACUOUS = 1000.0

ESTIMATED = (
    "The rounding in this bound is estimated: its proved error grows with the constants of all "
    "layers and would enlarge the bound (prove_rounding=True gives that one)."
)
ASSUMED = (
    "The rounding in this bound is estimated: an activation of your own is taken to be as accurate "
    "as those of torch (Activation(..., accurate=True) says that it is)."
)


@dataclass(frozen=True)
class Certificate:
    """What :func:`certify` found.

    Attributes
    ----------
    bound
        Upper bound on the Lipschitz constant, one for each given input; ``.max()`` for all of
        them. ``bound.rounding`` says whether its own rounding is proved or estimated.
    measured
        Lower bound by power iteration; None if it was not asked for.
    tree
        The modules with their own constants.
    output
        The region of the outputs.
    assumed
        Whether an activation of the user's was taken to be accurate.
    """

    bound: Bound
    measured: Bound | None
    tree: ModuleNode
    output: Region = field(repr=False)
    assumed: bool = False

    @property
    def execution_error(self) -> Numbers:
        """How far the network as executed can be from exact arithmetic, to first order.

        For two inputs of the domain, outputs differ by at most bound·distance + 2·execution_error.
        """
        return self.output.err

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

    def vacuous(self, derivative: Bound | None = None) -> list[bool | None]:
        """Whether each bound is infinite, or more than 1000 times the derivative: true but useless.

        ``derivative`` is what :func:`local_lipschitz` found at the same inputs; its upper side
        counts. Without it, or in another norm, what was measured counts. None if neither is known.
        Against the derivative at an input (radius 0) this proves that the bound is too large by
        that factor; against what was measured, or on a domain, it is evidence and no proof.
        """
        known = None if self.measured is None else self.measured.lower
        if derivative is not None and derivative.norm == self.bound.norm:
            known = derivative.upper
        found: list[bool | None] = [True if math.isinf(x) else None for x in self.bound.upper]
        if known is not None:
            for index, (upper, size) in enumerate(zip(self.bound.upper, known, strict=True)):
                if size > 0 and found[index] is None:  # a measured 0 may be an overflow
                    found[index] = bool(upper > VACUOUS * size)
        return found

    def to_dict(self, derivative: Bound | None = None) -> dict[str, Any]:
        """Everything as plain numbers and words, for JSON; what is infinite is null."""
        measured = None if self.measured is None else [float(x) for x in self.measured.lower]
        return {
            "upper": [_finite(x) for x in self.bound.upper],
            "vacuous": self.vacuous(derivative),
            "measured": measured,
            "rounding": self.bound.rounding,
            "execution_error": [_finite(x) for x in self.execution_error],
            "norm": str(self.bound.norm),
            "domain": str(self.bound.domain),
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

    def headline(self, derivative: Bound | None = None) -> str:
        """The result in a few lines: what is known of the derivative, the bound, and rounding.

        ``derivative`` is what :func:`local_lipschitz` found at the same inputs.
        """
        worst = float(self.bound.upper.max())
        many = len(self.bound.upper)
        of = f", the worst of {many} inputs" if many > 1 else ""
        where = f"in {self.bound.norm}, {self.bound.domain}{of}"
        lines = []
        if derivative is not None:
            found = f"{sides(derivative.max())} in {derivative.norm}, {derivative.domain}{of}"
            lines.append(f"Norm of the derivative: {found}")
        elif self.measured is not None:
            lines.append(f"Measured: at least {shown(float(self.measured.lower.max()), up=False)}")
        if math.isinf(worst):
            lines.append(
                f"No finite bound {where}: attention is not Lipschitz for tokens of any length. "
                "Give a Ball or inputs, or put a norm layer before it."
            )
        else:
            lines.append(f"Lipschitz constant at most {shown(worst)} {where}")
            if useless := self.vacuous(derivative).count(True):
                against = "what was measured" if derivative is None else "the derivative"
                part = f" for {useless} of {many} inputs" if many > 1 else ""
                lines.append(
                    f"This bound is vacuous{part}: more than {VACUOUS:g} times {against}. It "
                    "multiplies the constants of all modules, whose worst cases need not meet. For "
                    "inputs near a given one, taut.networks.propagate is far sharper."
                )
            if self.bound.rounding == "estimated":
                lines.append(ASSUMED if self.assumed else ESTIMATED)
        lost = float(self.execution_error.max())
        size = "no bound" if math.isinf(lost) else f"at most {shown(lost)} in the output"
        return "\n".join([*lines, f"Rounding of the network as executed: {size}"])

    @staticmethod
    def shown(value: float) -> str:
        """A bound in four digits, rounded up."""
        return shown(value)

    def _repr_html_(self) -> str:
        rows = [
            ["  " * row["depth"] + (row["module"] or row["class"]), shown(row["bound"]),
             f"{row['share']:.1%}", row["rule"]]
            for row in self.rows(2)
        ]  # fmt: skip
        table = html_table(["module", "bound", "share", "rule"], rows, numbers=(1, 2))
        return f"{html_lines(self.headline())}{table}"


def _finite(x: float) -> float | None:
    return float(x) if math.isfinite(x) else None


def sides(derivative: Bound) -> str:
    """The norm of one derivative, or the numbers it lies between, rounded outward."""
    if derivative.kind == "exact":
        return f"{float(derivative.value):.6g} exactly"
    return f"{shown(float(derivative.lower), up=False)} to {shown(float(derivative.upper))}"


def shown(x: float, *, up: bool = True) -> str:
    """Four digits, rounded up or down."""
    if not math.isfinite(x):
        return "none"
    if x == 0:
        return "0"
    unit = 10.0 ** (math.floor(math.log10(x)) - 3)
    text = f"{x:.4g}"
    if up:
        return text if float(text) >= x else f"{x + unit:.4g}"
    return text if float(text) <= x else f"{x - unit:.4g}"
