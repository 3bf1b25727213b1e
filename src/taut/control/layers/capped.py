"""CappedAttention: scores s become limit·tanh(s/limit)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from taut._base.checks import positive_in_range
from taut.control.layers.multihead import Attended, MultiheadLayer, weighed
from taut.models import HIDDEN


class CappedAttention(MultiheadLayer):
    """``torch.nn.MultiheadAttention`` with a soft limit on its scores.

    Parameters
    ----------
    embed_dim, num_heads, dropout, bias, batch_first, device, dtype
        As in ``torch.nn.MultiheadAttention``, which has the same parameters under the same names:
        its state dict fits.
    limit
        Largest absolute value of a score; small scores hardly change. It is not in the state dict.

    Notes
    -----
    Numbers that a mask adds count as part of the scores; those below −9,000 hide a key, as −∞ does.
    The layer has no Lipschitz constant: values are not limited.

    Examples
    --------
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> layer = CappedAttention(8, 2, batch_first=True, limit=1.0)
    >>> x = 100 * torch.randn(3, 5, 8)
    >>> _, weights = layer(x, x, x)
    >>> bool(weights.max() <= 1 / (1 + 4 * torch.e**-2))  # of 5 keys, scores from -1 to 1
    True
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        *,
        limit: float = 50.0,
    ) -> None:
        super().__init__(embed_dim, num_heads, dropout, bias, batch_first, device, dtype)
        self.limit = positive_in_range(limit, name="limit")

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, term: Tensor | None, need_weights: bool
    ) -> Attended:
        scores, hiding = soft_capped(q @ k.mT * self.head_dim**-0.5, term, self.limit)
        averages, weights = weighed(scores, v, hiding, dropout=self.dropout, training=self.training)
        return averages, weights if need_weights else None

    def extra_repr(self) -> str:
        """What the layer was made with."""
        return f"{super().extra_repr()}, limit={self.limit:g}"


def soft_capped(scores: Tensor, term: Tensor | None, limit: float) -> tuple[Tensor, Tensor | None]:
    """Scores plus the additive term within the limit, and the part of the term that hides keys.

    They are in single precision at least, and below the limit by more than rounding can add.
    """
    hiding = None
    scores = scores if scores.dtype == torch.float64 else scores.float()
    if term is not None:
        hidden = term < HIDDEN
        scores = scores + term.masked_fill(hidden, 0.0)
        hiding = torch.zeros_like(term).masked_fill_(hidden, -torch.inf)
    below = limit * (1 - 4 * torch.finfo(scores.dtype).eps)
    return below * torch.tanh(scores / limit), hiding
