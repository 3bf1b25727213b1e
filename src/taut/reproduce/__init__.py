"""Reproduce the experiments of "Softmax is 1/2-Lipschitz" (S1) on this machine.

Each experiment puts the paper's numbers beside its own: :func:`run` makes a :class:`Result`, with a
JSON record, a Markdown page and a figure. On the command line: ``taut reproduce``.
"""

from taut.reproduce._options import Options
from taut.reproduce._registry import EXPERIMENTS, run
from taut.reproduce._result import Claim, Curve, Plot, Result, Table

__all__ = ["EXPERIMENTS", "Claim", "Curve", "Options", "Plot", "Result", "Table", "run"]
