"""Reproduce the experiments of Nair 2025 and of Zhang et al. 2021 on this machine.

Each experiment puts the paper's numbers beside its own: :func:`run` makes a :class:`Result`, with a
JSON record, a Markdown page and a figure. On the command line: ``taut reproduce``.
"""

from taut.reproduce.figures import save_figure
from taut.reproduce.options import Options
from taut.reproduce.page import write
from taut.reproduce.registry import EXPERIMENTS, TRAININGS, run, run_training, unused_options
from taut.reproduce.result import Claim, Curve, Plot, Result, ResultTable

__all__ = [
    "EXPERIMENTS",
    "TRAININGS",
    "Claim",
    "Curve",
    "Options",
    "Plot",
    "Result",
    "ResultTable",
    "run",
    "run_training",
    "save_figure",
    "unused_options",
    "write",
]
