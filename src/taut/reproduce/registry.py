"""The experiments by name. A new one is a file in ``experiments`` and an entry here."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from taut.reproduce.options import Options
from taut.reproduce.result import Result

if TYPE_CHECKING:
    from taut.reproduce.seq2seq.task import Task


class Experiment(NamedTuple):
    """What an experiment shows, the options it uses besides quick, seed and folder, and its paper.

    The experiment ``figure-1`` is the function ``run`` of ``taut.reproduce.experiments.figure_1``,
    which is imported when it is run.
    """

    summary: str
    takes: tuple[str, ...] = ()
    paper: str = "Nair 2025"  # empty for those that are taut's own


FIGURE = ("model", "data", "limit", "p", "epsilons")
EXPERIMENTS = {
    "example-1": Experiment("a pair of points that nearly attains 1/2", ("p",)),
    "example-2": Experiment("a sequence that approaches 1/2", ("p",)),
    "proposition-2": Experiment("where 1/2 is attained", ("p",)),
    "figure-1": Experiment("attention of vision transformers", FIGURE),
    "figure-2": Experiment("logits of an image classifier", FIGURE),
    "figure-3": Experiment("attention of language models", FIGURE),
    "figure-4": Experiment("softmax policies", ("limit", "p", "epsilons", "scales")),
    "theorem-2": Experiment("cosine attention, bounds and constants"),
    "corollary-1": Experiment("regularity of softmax", ("p",)),
    "theorem-3": Experiment("the double softmax contracts"),
    "newhouse-2025": Experiment(
        "transformers of characters trained under a bound",
        ("data", "limit"),
        "Newhouse et al. 2025",
    ),
    "certified-vit": Experiment(
        "a vision transformer trained under a certificate", ("data", "limit"), ""
    ),
    "early-warning": Experiment(
        "which signal says first that a training goes wrong", ("data",), ""
    ),
    "real-models": Experiment(
        "exact constants, θ and bounds of trained models",
        ("model", "data", "limit"),
        "Emadi 2026 and Yudin et al. 2025",
    ),
}
ZHANG = "Zhang et al. 2021"
TRAININGS = {  # these take a task
    "translation": Experiment(
        "transformers under orthogonality constraints, scored by BLEU", paper=ZHANG
    ),
    "dialogue": Experiment("the same, scored by nine measures of replies", paper=ZHANG),
}


def run(name: str, options: Options | None = None) -> Result:
    """Run an experiment of Nair 2025.

    Parameters
    ----------
    name
        One of ``EXPERIMENTS``.
    options
        Sizes, seeds, models and data.

    Examples
    --------
    >>> result = run("example-1")
    >>> [(claim.found, claim.agrees) for claim in result.claims][1]
    ('0.4999999950444', True)
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"no experiment {name!r}; there are {', '.join(EXPERIMENTS)}")
    return _function(name)((options or Options()).checked())


def run_training(name: str, task: Task) -> Result:
    """Run ``"translation"`` or ``"dialogue"`` of Zhang et al. 2021, which train models."""
    if name not in TRAININGS:
        raise ValueError(f"no training {name!r}; there are {', '.join(TRAININGS)}")
    return _function(name)(task)


def _function(name: str) -> Callable[[Any], Result]:
    module = import_module(f"taut.reproduce.experiments.{name.replace('-', '_')}")
    function: Callable[[Any], Result] = module.run
    return function


# Fields of the options that only some experiments use, by the names in ``Experiment.takes``.
_FIELDS = {"model": "models", "data": "data", "limit": "limit", "p": "norms",
           "epsilons": "epsilons", "scales": "scales"}  # fmt: skip


def unused_options(name: str, options: Options) -> list[str]:
    """Options that were given to an experiment and that it does not use."""
    if name not in EXPERIMENTS:
        return []
    plain, takes = Options(), EXPERIMENTS[name].takes
    return [
        option
        for option, field in _FIELDS.items()
        if option not in takes and getattr(options, field) != getattr(plain, field)
    ]
