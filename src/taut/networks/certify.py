"""certify: an upper bound on how far a network's output moves with its input."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import nn

from taut._base.bound import Bound
from taut._base.domain import At, Ball, Everywhere
from taut._base.norm import FROBENIUS, TOKEN
from taut._base.rounding import number
from taut.networks.certificate import Certificate
from taut.networks.domain_points import NetworkDomain
from taut.networks.execution import precision
from taut.networks.float32_arithmetic import without_autocast
from taut.networks.interpreter import Interpreter
from taut.networks.power_iteration import lower_bound
from taut.networks.question import ask
from taut.networks.rule_check import check_rule

SHOWS = 1e-6  # drift, relative to the longest token, that could show in a bound
TOLERATED = 1.01  # factor that a proof of the rounding may cost


@torch.no_grad()
@without_autocast()
def certify(
    module: nn.Module,
    domain: NetworkDomain | torch.Tensor,
    *,
    norm: Literal["l2", "token"] = "l2",
    mask: torch.Tensor | None = None,
    context: NetworkDomain | torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    measure: bool = True,
    prove_rounding: bool = False,
    seed: int = 0,
) -> Certificate:
    """Bound the Lipschitz constant of a module or model, and show the share of every part.

    Parameters
    ----------
    module
        Any module whose parts have rules; see :func:`register` for your own. Models of text are
        bounded from their word embeddings (``inputs_embeds``), models of images from the pixels.
    domain
        :class:`Ball`, :class:`Everywhere` or :class:`At`; a tensor is the same as ``At(tensor)``.
    norm
        ``"l2"`` over all tokens together, or ``"token"``, the largest l2 norm of a token.
    mask
        True where a query (row) sees a key (column), (queries, keys) or with a batch in front; a
        size of 1 stands for all. For models of text, False for padding tokens, (batch, tokens).
    context
        What cross-attention reads: tokens that move as well (a domain) or are fixed (a tensor).
        For encoder-decoder models the input of the encoder.
    context_mask
        As ``mask``, for the context.
    measure
        Whether to look for a lower bound as well, by power iteration.
    prove_rounding
        Whether to insist on a bound whose own rounding is proved. Otherwise, where the proof would
        enlarge a bound by more than one per cent, as in deep networks, the error that is carried
        from layer to layer is estimated (1e-9 of the longest token), and ``bound.rounding`` says
        so. On a :class:`Ball` or :class:`Everywhere` it is always proved.
    seed
        Seed of the random directions and of the inputs that rules are checked with.

    Returns
    -------
    Certificate
        ``.bound`` is the :class:`taut.Bound`, ``.tree`` says where it comes from, ``print`` shows
        both.

    Notes
    -----
    Autocast is switched off in here: the module runs in the precision of its weights.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    >>> certificate = certify(layer, torch.randn(1, 4, 8))
    >>> certificate.measured.lower <= certificate.bound.upper
    array([ True])
    """
    if norm not in ("l2", "token"):
        raise ValueError(f"norm must be l2 or token, got {norm!r}")
    domain = At(domain) if isinstance(domain, torch.Tensor) else domain
    if not isinstance(domain, (At, Ball, Everywhere)):
        raise TypeError(
            f"domain must be a Ball, Everywhere, At or a tensor, got {type(domain).__name__}"
        )
    question, device = ask(module, domain, context, mask, context_mask, norm, seed)
    run = Interpreter(norm, precision(module, domain), device)
    y = question.answer(run)
    run.done()
    if not prove_rounding and (y.drift > SHOWS * y.length).any():
        estimate = Interpreter(norm, run.eps, device, proved=False)
        other = question.answer(estimate)
        if (y.lip > TOLERATED * other.lip).any():
            run, y = estimate, other
    check_rule(question, y, device)
    bound = Bound(
        np.zeros(len(y.lip)),
        number(y.lip),
        "upper",
        TOKEN if norm == "token" else FROBENIUS,
        question.where,
        run.tree.root.theorems(),
        rounding="proved" if run.proved and not run.assumed else "estimated",
    )
    low = lower_bound(question, bound) if measure else None
    return Certificate(bound, low, run.tree.root, y, run.assumed)
