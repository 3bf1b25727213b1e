"""Masks of attention, as one term that is added to the scores.

``torch.nn.MultiheadAttention`` means by True that a key is hidden; scaled_dot_product_attention,
transformers and certificates mean that it is seen.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Scores below this are masks: minus infinity, the lowest number of a type (-65504 in half
# precision), or -10000 by an old custom. Their weight is 0 in any case.
HIDDEN = -9e3


def merged_mask(
    attn_mask: Tensor | None,
    padding: Tensor | None,
    *,
    causal: bool,
    shape: tuple[int, int, int, int],
    like: Tensor,
) -> Tensor | None:
    """The term that is added to the scores (batch, heads, queries, keys), or None.

    Masks are those of ``torch.nn.MultiheadAttention``: True hides, numbers are added. ``causal``
    makes a causal mask unless an attention mask is passed.
    """
    batch, heads, queries, keys = shape
    term = None
    if attn_mask is not None:
        if tuple(attn_mask.shape) == (queries, keys):
            term = additive_mask(attn_mask, like, name="attn_mask")
        elif tuple(attn_mask.shape) == (batch * heads, queries, keys):
            term = additive_mask(attn_mask, like, name="attn_mask").reshape(shape)
        else:
            raise ValueError(
                f"attn_mask must be of shape {(queries, keys)} or "
                f"{(batch * heads, queries, keys)}, got {tuple(attn_mask.shape)}"
            )
    elif causal:
        hidden = torch.ones(queries, keys, dtype=torch.bool, device=like.device).triu(1)
        term = additive_mask(hidden, like, name="attn_mask")
    if padding is None:
        return term
    if tuple(padding.shape) != (batch, keys):
        raise ValueError(
            f"key_padding_mask must be of shape {(batch, keys)}, got {tuple(padding.shape)}"
        )
    padded = additive_mask(padding, like, name="key_padding_mask")[:, None, None, :]
    return padded if term is None else term + padded


def additive_mask(mask: Tensor, like: Tensor, *, name: str) -> Tensor:
    """−∞ where a mask is True (hidden) and 0 elsewhere; a mask of numbers as it is."""
    if mask.dtype == torch.bool:
        return visible_mask(~mask, like)
    if not mask.is_floating_point():
        raise TypeError(f"{name} must be boolean or floating, got {mask.dtype}")
    return mask.to(like.dtype)


def visible_mask(seen: Tensor, like: Tensor, *, hidden: float = -torch.inf) -> Tensor:
    """0 where a mask is True (seen), ``hidden`` elsewhere, of the type and device of ``like``."""
    zeros = torch.zeros(seen.shape, dtype=like.dtype, device=like.device)
    return zeros.masked_fill(~seen.to(like.device), hidden)


def without_blind_rows(term: Tensor) -> tuple[Tensor, Tensor]:
    """The term with rows that hide every key set to 0, and which rows those are.

    The softmax of such a row is undefined; callers set its weights and output to 0.
    """
    blind = (term == -torch.inf).all(dim=-1, keepdim=True)
    return term.masked_fill(blind, 0.0), blind


def seeing_itself(term: Tensor) -> Tensor:
    """The term, changed so that no token sees another one better than itself.

    Rows are shifted so that the diagonal is 0, which does not change a softmax, and larger entries
    are clipped to 0. A token that was hidden from itself, such as a padding token, sees itself.
    """
    n = term.shape[-1]
    term = term.expand(*term.shape[:-2], n, n)
    own = term.diagonal(dim1=-2, dim2=-1)
    # Libraries also hide keys with the lowest number of a type.
    own = own.masked_fill(own < torch.finfo(term.dtype).min / 2, 0.0)
    diagonal = torch.eye(n, dtype=torch.bool, device=term.device)
    return (term - own[..., None]).clamp(max=0.0).masked_fill(diagonal, 0.0)
