"""Whether any combination of replaced words can change what a classifier says."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from taut._base.checks import whole_number
from taut._base.domain import At
from taut._base.rounding import EPS
from taut.networks.execution import precision
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.propagation.engine import Engine, OutOfTimeError
from taut.networks.propagation.node import UnboundedError
from taut.networks.propagation.propagate import rounding_of
from taut.networks.propagation.record import record
from taut.networks.propagation.replacement_set import ReplacementSet
from taut.networks.propagation.request import deadline_of, refuse_padding
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.slopes import lower_bounds
from taut.networks.propagation.targets import margins
from taut.networks.question import Question, ask
from taut.networks.rule_check import compare_outputs

ROUNDS = 3  # over all tokens, of the search for a combination that changes the class


@dataclass(frozen=True)
class WordChanges:
    """What :func:`word_changes` found.

    Attributes
    ----------
    verdict
        ``"proved"``: no combination of replacements changes the class. ``"refuted"``: one does,
        and ``example`` is it. ``"open"``: neither was found.
    predicted
        The class of the input as it is.
    margin
        Lower bound of the margin over all combinations; −inf if there is none.
    example
        For tokens that are replaced, the index of their replacement; None unless refuted.
    combinations
        How many inputs the verdict is about.
    rounding
        Whether the rounding of a proof was ``"proved"`` itself, or ``"estimated"``, as in half
        precision.
    """

    verdict: Literal["proved", "refuted", "open"]
    predicted: int
    margin: float
    example: dict[int, int] | None
    combinations: int
    rounding: Literal["proved", "estimated"] = "proved"


@torch.no_grad()
@without_autocast()
def word_changes(
    module: nn.Module,
    x: torch.Tensor,
    replacements: dict[int, torch.Tensor],
    *,
    mask: torch.Tensor | None = None,
    executed: bool = True,
    optimise: int = 4,
    time_limit: float | None = None,
) -> WordChanges:
    """Prove that no combination of replacements changes the class of an input, or find one.

    First combinations are searched for one that changes the class. If none is found, the margins
    are bounded over all mixtures of a token and its replacements, each token by itself, as in
    :func:`propagate`: a proof covers every combination at once.

    Parameters
    ----------
    module
        A classifier, one row of logits for each input.
    x
        The embeddings of one input, (1, tokens, width).
    replacements
        For each token that may change, embeddings of what may stand in its place, (many, width).
        :func:`synonym_replacements` and :func:`nearest_replacements` find those of a text.
    mask, executed, optimise
        As in :func:`certified_radius`.
    time_limit
        Seconds for the proof; without one by then the verdict is open.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> x = torch.randn(1, 1, 4).double()
    >>> near = {0: x[0] + 0.01 * torch.randn(5, 4).double()}
    >>> word_changes(net.double(), x, near).verdict
    'proved'
    """
    question, device = ask(module, At(x), None, mask, None, "l2", 0)
    found = _checked(x, replacements)
    refuse_padding(question, list(found), x)
    deadline = deadline_of(time_limit)
    tape = record(question, 0, device)
    last = tape[-1]
    compare_outputs(question, question.points(1), last.centre[None])
    if last.tokens != 1 or last.width < 2:
        raise TypeError("a classifier must give one row of at least two logits for each input")
    label = int(last.centre[0].argmax())
    many = math.prod(len(each) + 1 for each in found.values())
    example = _example(question, x, found, label)
    if example is not None:
        return WordChanges("refuted", label, -math.inf, example, many)
    fixed = {token: each.to(device, torch.float64) for token, each in found.items()}
    eps = precision(module, At(x)) if executed else 0.0
    rows = margins([label], last.width).to(last.centre)[0][:, None]
    try:
        engine = Engine(tape, ReplacementSet(tape[0].centre, fixed), eps, deadline=deadline)
        moved = lower_bounds(engine, Rows(rows), whole_number(optimise, name="optimise"))
    except (UnboundedError, OutOfTimeError):
        return WordChanges("open", label, -math.inf, None, many)
    terms = (rows * last.centre).flatten(1)
    value = terms.sum(dim=1) - terms.abs().sum(dim=1) * (8 * EPS * last.width)
    least = float((value + moved).min())
    rounding = rounding_of([tape], eps)
    return WordChanges("proved" if least > 0 else "open", label, least, None, many, rounding)


def nearest_words(embeddings: torch.Tensor, ids: Any, count: int) -> dict[int, torch.Tensor]:
    """Embeddings of the words nearest to each word of an input, in l2.

    Parameters
    ----------
    embeddings
        Those of all words, (words, width): ``model.get_input_embeddings().weight``.
    ids
        The words of the input; None where a token must stay as it is.
    count
        How many words for each.
    """
    count = whole_number(count, name="count", least=1)
    table = embeddings.detach()
    found = {}
    for place, word in enumerate(ids):
        if word is not None:
            found[place] = table[nearest(table, int(word), count)]
    return found


def nearest(
    embeddings: torch.Tensor, word: int, count: int, never: Collection[int] = ()
) -> torch.Tensor:
    """The words nearest to one in l2, without it and without those of ``never``."""
    table = embeddings.detach().double()
    apart = (table - table[word]).norm(dim=1)
    left_out = sorted({word, *never})
    apart[left_out] = math.inf
    found: torch.Tensor = apart.topk(min(count, len(table) - len(left_out)), largest=False).indices
    return found


def _checked(x: torch.Tensor, replacements: dict[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    if x.ndim != 3 or len(x) != 1:
        raise ValueError(f"x must be one input (1, tokens, width), got {tuple(x.shape)}")
    if not replacements:
        raise ValueError("replacements must name at least one token that may change")
    for token, vectors in replacements.items():
        if not 0 <= whole_number(token, name="a token") < x.shape[1]:
            raise ValueError(f"tokens must be from 0 to {x.shape[1] - 1}, got {token}")
        if vectors.ndim != 2 or not len(vectors) or vectors.shape[1] != x.shape[2]:
            raise ValueError(
                f"replacements of token {token} must be (many, {x.shape[2]}), got "
                f"{tuple(vectors.shape)}"
            )
        if not bool(torch.isfinite(vectors).all()):
            raise ValueError(f"replacements of token {token} contain NaN or infinity")
    return {token: vectors.detach() for token, vectors in replacements.items()}


def _example(
    question: Question, x: torch.Tensor, replacements: dict[int, torch.Tensor], label: int
) -> dict[int, int] | None:
    """A combination that changes the class, token by token the worst replacement, or None."""
    (point,) = question.points(1)
    chosen: dict[int, int] = {}
    for _ in range(ROUNDS):
        for token, vectors in replacements.items():
            trials = point.repeat(len(vectors) + 1, 1, 1)
            trials[1:, token] = vectors.to(point)
            trials[0, token] = x[0, token].to(point)
            logits = torch.cat([question.call(one[None]).reshape(1, -1) for one in trials])
            if not bool(torch.isfinite(logits).all()):
                raise ValueError("the network gives NaN or infinite logits for these replacements")
            others = logits.clone()
            others[:, label] = -math.inf
            worst = int((logits[:, label] - others.amax(dim=1)).argmin())
            chosen.pop(token, None)
            if worst:
                chosen[token] = worst - 1
            point = trials[worst : worst + 1]
            if chosen and bool(logits[worst].argmax() != label):
                return chosen
    return None
