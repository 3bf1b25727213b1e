"""certify: an upper bound on how far a network's output moves with its input."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import nn

from taut._bound import Bound
from taut.attention._spectral import FROBENIUS, TOKEN
from taut.torch._certificate import Certificate
from taut.torch._domain import At, Ball, Domain, Everywhere
from taut.torch._measure import lower_bound
from taut.torch._numbers import number
from taut.torch._question import agree, ask
from taut.torch._run import Run
from taut.torch._weights import precision


@torch.no_grad()
def certify(
    module: nn.Module,
    domain: Domain | torch.Tensor,
    *,
    norm: Literal["l2", "token"] = "l2",
    mask: torch.Tensor | None = None,
    context: Domain | torch.Tensor | None = None,
    context_mask: torch.Tensor | None = None,
    measure: bool = True,
    seed: int = 0,
) -> Certificate:
    """Lipschitz constant of a module or model, from above, with the part of every module in it.

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
        True where a query (row) sees a key (column), (queries, keys) or with a batch in front. For
        models of text, True where a token is no padding, (batch, tokens).
    context
        What cross-attention reads: tokens that move, too (a domain), or that are fixed (a tensor).
        For encoder-decoder models the input of the encoder.
    context_mask
        As ``mask``, for the context.
    measure
        Whether to look for a lower bound as well, by power iteration.
    seed
        Of the random numbers that this and the check of the rules need.

    Returns
    -------
    Certificate
        ``.bound`` is the :class:`taut.Bound`, ``.tree`` says where it comes from, ``print`` shows
        both.

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
    run = Run(norm, precision(module, domain), device)
    y = question.answer(run)
    run.done()
    agree(question, y, device)
    bound = Bound(
        np.zeros(len(y.lip)),
        number(y.lip),
        "upper",
        TOKEN if norm == "token" else FROBENIUS,
        question.where,
        run.root.theorems(),
    )
    low = lower_bound(question, bound) if measure else None
    head = run.head if run.head is not None and run.head.output is y else None
    return Certificate(bound, low, run.root, y, head, run.eps)
