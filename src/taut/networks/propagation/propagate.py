"""propagate: bounds of any linear function of a network's output, near given inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from torch import nn

from taut._base.bound import Bound
from taut._base.bound_text import VALUE
from taut._base.domain import At
from taut._base.norm import Norm, lp
from taut._base.rounding import EPS, Numbers
from taut.networks.ellipsoids.near_input import ellipsoid_radius
from taut.networks.execution import precision
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.propagation.engine import Engine, OutOfTimeError
from taut.networks.propagation.input_set import InputSet
from taut.networks.propagation.node import Node, UnboundedError
from taut.networks.propagation.record import record
from taut.networks.propagation.request import Request, checked_request, deadline_of
from taut.networks.propagation.result import (
    EARLIER,
    LINEAR,
    NAMES,
    ROUNDING,
    TOGETHER,
    Propagation,
    Slack,
)
from taut.networks.propagation.rows import Rows
from taut.networks.propagation.targets import checked_targets
from taut.networks.question import ask
from taut.networks.rule_check import compare_outputs

THEOREMS = {
    "activation": ("affine-activation",),
    "attention": ("affine-attention", "softmax-remainder", "softmax-joint"),
    "norm": ("affine-norm",),
    "product": ("affine-product",),
    "constant": ("chain",),
}
ELLIPSOIDS = {
    "activation": "ellipsoid-activation",
    "attention": "ellipsoid-attention",
    "norm": "ellipsoid-norm",
}


@torch.no_grad()
@without_autocast()
def propagate(
    module: nn.Module,
    domain: At,
    *,
    norm: float = 2,
    targets: torch.Tensor | None = None,
    tokens: Sequence[int] | None = None,
    scale: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    context: torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    executed: bool = False,
    checkpoints: bool | None = None,
    time_limit: float | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> Propagation:
    """Bound linear functions of a network's output for all inputs near given ones.

    Each operation is replaced by an affine one and an error, which is found for each function that
    is bounded and carried back to the input (theorem affine-rows). Near an input this is far
    sharper than :func:`certify`, which multiplies the constants of all modules.

    Parameters
    ----------
    module
        As in :func:`certify`. Modules whose rules have no affine reading are bounded by their
        constants, and the result names them.
    domain
        Inputs and their radius, ``At(x, radius)``.
    norm
        Norm of the radius over all entries of an input: 1, 2 or ``math.inf``.
    targets
        Which functions: coefficients of the output, ``(functions, *output)`` for all inputs, or
        ``(inputs, functions, *output)`` for each. Without them, every entry of the output. See
        :func:`margins`.
    tokens
        The tokens that move, such as those of one word; the others are fixed.
    scale
        Size of every entry, of the shape of one input or of all: the radius counts in units of it.
    mask, context, context_mask
        As in :func:`certify`; a context is fixed.
    executed
        Whether to bound the network as executed in the precision of its weights, whose rounding is
        then added, or in exact arithmetic.
    checkpoints
        Whether rows end at checkpoints, where the errors so far are kept as one ellipsoid, instead
        of being carried to the input (theorem affine-checkpoint). The cost then grows with the
        depth of a network and not with its square. None: for large networks.
    time_limit
        Seconds after which the bounds that are not found are given as infinite.
    progress
        Called with the number of operations that are bounded so far, and of all.

    Returns
    -------
    Propagation
        ``.bound.lower`` and ``.bound.upper`` are (inputs, functions).

    Examples
    --------
    >>> import torch, taut
    >>> _ = torch.manual_seed(0)
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
    >>> x = torch.randn(3, 4)
    >>> found = propagate(net.double(), taut.At(x, 0.1), norm=float("inf"))
    >>> found.bound.lower.shape
    (3, 2)
    >>> bool((found.bound.lower < found.centre).all())
    True
    """
    if not isinstance(domain, At):
        raise TypeError(f"domain must be taut.At(inputs, radius), got {type(domain).__name__}")
    question, device = ask(module, domain, context, mask, context_mask, "l2", 0)
    request = checked_request(question, norm, tokens, scale, device)
    deadline = deadline_of(time_limit)
    eps = precision(module, domain) if executed else 0.0
    report = progress or (lambda done, all_: None)
    tapes = [record(question, sample, device) for sample in range(len(domain.inputs))]
    outputs = torch.stack([tape[-1].centre for tape in tapes])
    compare_outputs(question, question.points(1), outputs)
    rows = checked_targets(targets, outputs)
    together = [
        ellipsoid_radius(question, request, sample, rows[sample], eps, deadline, device)
        for sample in range(len(tapes))
    ]
    found = [
        _one(
            tape,
            request,
            sample,
            rows[sample],
            together[sample],
            eps,
            deadline,
            report,
            checkpoints,
        )
        for sample, tape in enumerate(tapes)
    ]
    kinds = dict.fromkeys(node.kind for tape in tapes for node in tape if node.kind in THEOREMS)
    constants = dict.fromkeys(n.path for tape in tapes for n in tape if n.kind == "constant")
    theorem = ["affine-rows", *dict.fromkeys(t for kind in kinds for t in THEOREMS[kind])]
    if any(each is not None for each in together):
        theorem.append("ellipsoid-algebra")
        theorem += [ELLIPSOIDS[kind] for kind in kinds if kind in ELLIPSOIDS]
    if any(each[4] for each in found):
        theorem += ["affine-checkpoint", "ellipsoid-sum", "ellipsoid-product"]
    bound = Bound(
        np.stack([each[0] for each in found]), np.stack([each[1] for each in found]),
        "bracket", Norm(lp(norm).source, "value"), request.where, tuple(theorem), quantity=VALUE,
        rounding=rounding_of(tapes, eps),
    )  # fmt: skip
    centre = np.stack([each[2] for each in found])
    slack = tuple(each[3] for each in found)
    return Propagation(bound, centre, slack, tuple(constants), executed)


def rounding_of(tapes: list[list[Node]], eps: float) -> Literal["proved", "estimated"]:
    """How the rounding of bounds of recorded networks is justified.

    It is estimated where a function of the user's is taken to be accurate; as executed also where
    a module has only a constant, whose error is known to first order, and in half precision, which
    may underflow.
    """
    nodes = [node for tape in tapes for node in tape]
    executed = eps > 2.0**-20 or (eps > 0 and any(node.kind == "constant" for node in nodes))
    return "estimated" if executed or any(node.assumed for node in nodes) else "proved"


def _one(
    tape: list[Node],
    request: Request,
    sample: int,
    rows: torch.Tensor,
    together: torch.Tensor | None,
    eps: float,
    deadline: float,
    progress: Callable[[int, int], object],
    checkpoints: bool | None,
) -> tuple[Numbers, Numbers, Numbers, tuple[Slack, ...], bool]:
    """Both sides, the value at the centre, and the slack, for one input."""
    value = (rows * tape[-1].centre).flatten(1)
    doubt = value.abs().sum(dim=1) * ((value.shape[1] + 8) * EPS)
    value = value.sum(dim=1)
    inputs = InputSet(request.radius[sample], request.norm, request.scale[sample])
    low, high = torch.full_like(value, -torch.inf), torch.full_like(value, torch.inf)
    parts: tuple[Slack, ...] = ()
    used = False  # whether rows ended at a checkpoint
    try:
        engine = Engine(tape, inputs, eps, progress, deadline, checkpoints=checkpoints)
        low, high, parts = bound_rows(engine, rows)
    except (UnboundedError, OutOfTimeError):
        pass
    else:
        used = engine.checkpoint is not None
    if together is not None:
        far = together + doubt
        if bool(((high - low) / 2 > far).any()):
            parts = (Slack("", TOGETHER, float(far.mean())),)
        low, high = torch.maximum(low, value - far), torch.minimum(high, value + far)
    return low.cpu().numpy(), high.cpu().numpy(), value.cpu().numpy(), parts, used


def bound_rows(
    engine: Engine, rows: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, tuple[Slack, ...]]:
    """Both sides of functions of the output, (functions, tokens, width), and their slack."""
    last = engine.nodes[-1]
    start = [(last, Rows(rows))]
    low, high = engine.interval(start)
    value = (rows * last.centre).flatten(1).sum(dim=1)
    doubt = (rows * last.centre).abs().flatten(1).sum(dim=1) * ((last.centre.numel() + 8) * EPS)
    found = engine.carry(start)
    where: dict[tuple[str, str], float] = {(LINEAR, ""): float(found.reach.mean())}
    where[ROUNDING, ""] = float(found.rounding.mean())
    for index, error in found.slack.items():
        node = engine.nodes[index]
        key = (NAMES.get(node.kind, EARLIER), node.path)
        where[key] = where.get(key, 0.0) + float(error.mean())
    parts = [Slack(path, what, amount) for (what, path), amount in where.items() if amount > 0]
    parts.sort(key=lambda part: -part.amount)
    return value + low - doubt, value + high + doubt, tuple(parts)
