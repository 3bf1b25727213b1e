"""verify: whether a property of a network's output holds for all inputs near a given one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from taut._base.checks import whole_number
from taut._base.domain import At
from taut.networks.execution import precision
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.propagate import THEOREMS, rounding_of
from taut.networks.propagation.record import record
from taut.networks.propagation.request import checked_request, deadline_of
from taut.networks.question import ask
from taut.networks.rule_check import compare_outputs
from taut.networks.verification.fingerprint import fingerprint
from taut.networks.verification.property import class_property, given_property
from taut.networks.verification.search import Search
from taut.networks.verification.state import StateFile
from taut.networks.verification.verdict import Verdict

BELOW = ("affine-attention-below", "l1-near-reference")  # what attention needs besides in l∞


@torch.no_grad()
@without_autocast()
def verify(
    module: nn.Module,
    domain: At,
    *,
    norm: float = 2,
    label: int | None = None,
    targets: torch.Tensor | None = None,
    above: float | Sequence[float] | torch.Tensor = 0.0,
    clauses: Sequence[int] | None = None,
    tokens: Sequence[int] | None = None,
    scale: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    executed: bool = True,
    time_limit: float | None = None,
    folder: str | Path | None = None,
    progress: Callable[[Verdict], object] | None = None,
    seed: int = 0,
) -> Verdict:
    """Prove that a classifier keeps its class near an input, or find an input where it does not.

    First projected gradient steps search for a counterexample. Then the margins are bounded as in
    :func:`propagate`. Where that does not suffice, the set is split by the signs of undecided
    ReLUs, until every branch is proved (theorem split-multipliers). Without a time limit this may
    take long: the number of branches can double with every ReLU.

    Parameters
    ----------
    module
        As in :func:`propagate`.
    domain
        One input and its radius, ``At(x, radius)`` with x of shape (1, ...).
    norm, tokens, scale, mask
        As in :func:`propagate`.
    label
        The class that no other one may reach; that of the input if it is left out.
    targets, above, clauses
        Another property than that of a class: functions of the output as in :func:`propagate`,
        ``(functions, *output)``, what each must exceed, and the clause that each belongs to. The
        property holds if at every input some function of each clause exceeds its number. Without
        clauses every function must.
    executed
        Whether a proof is for the network as executed, or for exact arithmetic. A counterexample is
        always one of the network as executed.
    time_limit
        Seconds after which an undecided property is called open.
    folder
        Where the state is kept, so that the same call carries on after it was stopped.
    progress
        Called with the verdict so far.
    seed
        Seed of the random starts of the attack.

    Examples
    --------
    >>> import torch, taut
    >>> _ = torch.manual_seed(1)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> x = torch.randn(1, 4)
    >>> verify(net, taut.At(x, 0.01)).verdict
    'proved'
    >>> found = verify(net, taut.At(x, 50.0))
    >>> found.verdict, int(net(found.example).argmax()) != found.predicted
    ('refuted', True)
    """
    if not isinstance(domain, At):
        raise TypeError(f"domain must be taut.At(input, radius), got {type(domain).__name__}")
    question, device = ask(module, domain, None, mask, None, "l2", 0)
    if len(domain.inputs) != 1:
        raise ValueError(f"verify takes one input at a time, got {len(domain.inputs)}")
    request = checked_request(question, norm, tokens, scale, device)
    deadline = deadline_of(time_limit)
    seed = whole_number(seed, name="seed", least=0)
    tape = record(question, 0, device)
    output = tape[-1].centre
    compare_outputs(question, question.points(1), output[None])
    if targets is None:
        wanted = class_property(output, label)
    elif label is not None:
        raise TypeError("pass either label or targets, not both")
    else:
        wanted = given_property(output, targets, above, clauses)
    eps = precision(module, domain) if executed else 0.0
    inputs = InputSet(request.radius[0], request.norm, request.scale[0])
    asked = (
        module, domain.inputs, request.radius[0], request.norm, request.scale[0], mask, executed,
        wanted.rows, wanted.above, wanted.clause,
    )  # fmt: skip
    file = StateFile(folder, "" if folder is None else fingerprint(*asked))
    search = Search(question, wanted, inputs, file, deadline)
    kinds = dict.fromkeys(node.kind for node in tape if node.kind in THEOREMS)
    used = ["affine-rows", *dict.fromkeys(t for kind in kinds for t in THEOREMS[kind])]
    used += BELOW if "attention" in kinds and request.norm == math.inf else ()

    def so_far() -> Verdict:
        state = search.state
        example = None
        if state.example is not None:
            example = torch.from_numpy(state.example).to(question.points(1)[0])
        status: Literal["proved", "refuted", "open"] = "open"
        if example is not None:
            status = "refuted"
        elif search.proved == wanted.clauses:
            status = "proved"
        return Verdict(
            status, float(state.lower.min()), example, wanted.label, wanted.clauses, search.proved,
            state.bounded, search.waiting if status == "open" else 0, search.seconds,
            request.norm, request.where,
            (*used, "split-multipliers"), rounding_of([tape], eps), executed,
            search.note if status == "open" else "",
        )  # fmt: skip

    def told() -> None:
        if progress is not None:
            progress(so_far())

    try:
        search.attack(seed)
        told()
        search.bound(tape, eps, told)
    finally:
        search.save()
    return so_far()
