"""Tell padding tokens of an argument by the masks that are passed with it."""

from __future__ import annotations

import torch

# Masks of padding, and the prefix of the arguments that they belong to.
_DECODER = ("decoder_", "labels", "tgt")
_PADDINGS = {"src_key_padding_mask": "src", "tgt_key_padding_mask": "tgt", "key_padding_mask": ""}


def real_tokens(name: str, tensors: dict[str, torch.Tensor]) -> torch.Tensor | None:
    """True for the tokens of an argument that are not padding, (samples, tokens), if known.

    A mask belongs to the arguments of the same dict that have as many samples and tokens.
    """
    group, _, leaf = name.rpartition(".")
    tensor = tensors[name]
    beside = {
        each.rpartition(".")[2]: mask
        for each, mask in tensors.items()
        if each.rpartition(".")[0] == group and mask.ndim == 2
    }
    if tensor.ndim not in (2, 3) or "mask" in leaf:
        return None
    chosen = "decoder_attention_mask" if leaf.startswith(_DECODER) else "attention_mask"
    mask = beside.get(chosen)
    if mask is not None and mask.shape == tensor.shape[:2]:
        real = mask >= 0 if mask.is_floating_point() and bool((mask < 0).any()) else mask.bool()
        return None if _causal(real) else real
    for padding, target in _PADDINGS.items():
        mask = beside.get(padding)
        if mask is None or not leaf.startswith(target):
            continue
        if tuple(mask.shape) in (tuple(tensor.shape[:2]), (tensor.shape[1], tensor.shape[0])):
            return ~mask if mask.dtype is torch.bool else mask == 0
    return None


def _causal(mask: torch.Tensor) -> bool:
    """Whether a mask says which keys a query sees, not which tokens are padding."""
    square = mask.shape[0] == mask.shape[1] > 1
    return bool(square and torch.equal(mask, torch.ones_like(mask).tril()))
