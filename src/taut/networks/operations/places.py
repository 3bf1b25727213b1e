"""Places: the entries of tokens in another order, left out, repeated, or zero."""

from __future__ import annotations

import torch


class Places:
    """Where the entries of a new arrangement come from, and how often each is read.

    Attributes
    ----------
    index
        (tokens, width), −1 for zeros.
    most
        How often an entry is read at most.
    within
        The same within one new token.
    reads
        Which tokens each new token reads, (new tokens, tokens).
    """

    def __init__(self, index: torch.Tensor, tokens: int, width: int) -> None:
        entries = tokens * width
        if index.ndim != 2 or bool(((index < -1) | (index >= entries)).any()):
            raise ValueError(f"places must be (tokens, width), each from -1 to {entries - 1}")
        self.index = index.cpu()
        real = self.index >= 0
        counts = torch.bincount(self.index[real], minlength=entries)
        self.most = max(1, int(counts.max()))
        ordered = self.index.sort(dim=1).values
        self.within = 1
        while self.within < ordered.shape[1] and _again(ordered, self.within):
            self.within += 1
        self.reads = torch.zeros(len(index), tokens, dtype=torch.bool)
        rows = torch.arange(len(index))[:, None].expand_as(self.index)
        self.reads[rows[real], self.index[real] // width] = True

    @property
    def widest(self) -> int:
        """How many tokens a new token reads at most."""
        return max(1, int(self.reads.sum(dim=1).max()))

    def applied(self, flat: torch.Tensor) -> torch.Tensor:
        """The new arrangement of entries (..., entries)."""
        zero = flat.new_zeros(*flat.shape[:-1], 1)
        return torch.cat((flat, zero), dim=-1)[..., self.index.to(flat.device)]


def _again(ordered: torch.Tensor, many: int) -> bool:
    """Whether an entry stands in more than so many places of a token, whose places are sorted."""
    later = ordered[:, many:]
    return bool(((later == ordered[:, :-many]) & (later >= 0)).any())


def patch_places(image: tuple[int, ...], size: tuple[int, int]) -> torch.Tensor:
    """The pixels of every patch of an image, (patches, pixels); patches do not overlap."""
    channels, height, width = image
    every = torch.arange(channels * height * width).reshape(1, channels, height, width)
    found = torch.nn.functional.unfold(every.double(), kernel_size=size, stride=size)
    return found[0].mT.long()
