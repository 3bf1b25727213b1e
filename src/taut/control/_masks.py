"""Masks: what a caller may pass, as one additive term of the scores."""

from __future__ import annotations

import torch
from torch import Tensor


def merged(
    attn_mask: Tensor | None,
    padding: Tensor | None,
    *,
    causal: bool,
    shape: tuple[int, int, int, int],
    like: Tensor,
) -> Tensor | None:
    """What is added to the scores (batch, heads, queries, keys), or None.

    Masks are those of ``torch.nn.MultiheadAttention``: True hides, numbers are added. ``causal``
    says what an attention mask is, if there is one, and makes one otherwise.
    """
    batch, heads, queries, keys = shape
    term = None
    if attn_mask is not None:
        if tuple(attn_mask.shape) == (queries, keys):
            term = additive(attn_mask, like, name="attn_mask")
        elif tuple(attn_mask.shape) == (batch * heads, queries, keys):
            term = additive(attn_mask, like, name="attn_mask").reshape(shape)
        else:
            raise ValueError(
                f"attn_mask must be of shape {(queries, keys)} or "
                f"{(batch * heads, queries, keys)}, got {tuple(attn_mask.shape)}"
            )
    elif causal:
        hidden = torch.ones(queries, keys, dtype=torch.bool, device=like.device).triu(1)
        term = additive(hidden, like, name="attn_mask")
    if padding is None:
        return term
    if tuple(padding.shape) != (batch, keys):
        raise ValueError(
            f"key_padding_mask must be of shape {(batch, keys)}, got {tuple(padding.shape)}"
        )
    padded = additive(padding, like, name="key_padding_mask")[:, None, None, :]
    return padded if term is None else term + padded


def additive(mask: Tensor, like: Tensor, *, name: str) -> Tensor:
    """Zero and −∞ for a mask of False and True (hidden); a mask of numbers as it is."""
    if mask.dtype == torch.bool:
        zeros = torch.zeros(mask.shape, dtype=like.dtype, device=like.device)
        return zeros.masked_fill(mask, -torch.inf)
    if not mask.is_floating_point():
        raise TypeError(f"{name} must be boolean or floating, got {mask.dtype}")
    return mask.to(like.dtype)


def sighted(term: Tensor) -> tuple[Tensor, Tensor]:
    """The term without rows that hide everything, and which rows those were.

    The softmax of such a row is not defined; its weights and its output are set to 0.
    """
    blind = (term == -torch.inf).all(dim=-1, keepdim=True)
    return term.masked_fill(blind, 0.0), blind


def seeing_itself(term: Tensor) -> Tensor:
    """The term, changed so that no token sees another one better than itself.

    Rows are shifted so that the diagonal is 0, which does not change a softmax, and what is larger
    is cut to 0. A token that was hidden from itself, such as padding, is not any more.
    """
    n = term.shape[-1]
    term = term.expand(*term.shape[:-2], n, n)
    own = term.diagonal(dim1=-2, dim2=-1)
    # Libraries also hide with the lowest number there is.
    own = own.masked_fill(own < torch.finfo(term.dtype).min / 2, 0.0)
    diagonal = torch.eye(n, dtype=torch.bool, device=term.device)
    return (term - own[..., None]).clamp(max=0.0).masked_fill(diagonal, 0.0)
