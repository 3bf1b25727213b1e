"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from taut.reproduce._options import Options
from taut.reproduce._result import Result


class Experiment(NamedTuple):
    """What it shows, and where it is: modules are imported when they are run."""

    summary: str
    module: str
    function: str
    takes: tuple[str, ...] = ()  # options that it uses, besides --quick, --seed and --output-dir


FIGURE = ("model", "data", "limit", "p", "epsilons")
POLICIES = ("limit", "p", "epsilons", "scales")
EXPERIMENTS = {
    "example-1": Experiment(
        "a pair of points that nearly attains 1/2", "_tightness", "example_1", ("p",)
    ),
    "example-2": Experiment("a sequence that approaches 1/2", "_tightness", "example_2", ("p",)),
    "proposition-2": Experiment("where 1/2 is attained", "_tightness", "proposition_2", ("p",)),
    "figure-1": Experiment("attention of vision transformers", "_attention", "figure_1", FIGURE),
    "figure-2": Experiment("logits of an image classifier", "_logits", "figure_2", FIGURE),
    "figure-3": Experiment("attention of language models", "_attention", "figure_3", FIGURE),
    "figure-4": Experiment("softmax policies", "_policies", "figure_4", POLICIES),
    "theorem-2": Experiment("cosine attention, bounds and constants", "_scsa", "theorem_2"),
    "corollary-1": Experiment("regularity of softmax", "_regularity", "corollary_1", ("p",)),
    "theorem-3": Experiment("the double softmax contracts", "_games", "theorem_3"),
}


def run(name: str, options: Options | None = None) -> Result:
    """Run an experiment.

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
    place = EXPERIMENTS[name]
    function: Callable[[Options], Result] = getattr(
        import_module(f"taut.reproduce.{place.module}"), place.function
    )
    return function((options or Options()).checked())
