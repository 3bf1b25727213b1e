"""Where tokens come from: words or patches, in a ball in either case."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TokenBall(nn.Module):
    """The nearest tokens that are at most ``reach`` long. It moves nothing farther apart."""

    def __init__(self, reach: float) -> None:
        super().__init__()
        self.reach = reach

    def forward(self, x: Tensor) -> Tensor:
        """Tokens (batch, tokens, width)."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        found: Tensor = x * (self.reach / length.clamp(min=self.reach))
        return found

    def extra_repr(self) -> str:
        """Its radius."""
        return f"{self.reach:g}"


class WordEmbedding(nn.Module):
    """One vector for each word, of root mean square at most 1."""

    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.functional.normalize(torch.randn(words, width)))
        with torch.no_grad():
            self.weight.mul_(width**0.5)

    def forward(self, ids: Tensor) -> Tensor:
        """Vectors of words (batch, tokens)."""
        return nn.functional.embedding(ids, self.weight)


class PatchEmbedding(nn.Module):
    """A linear map of every patch of an image, and a vector for its place.

    The map has the limit 1 from patches to tokens.
    """

    def __init__(self, channels: int, image_size: int, patch_size: int, width: int) -> None:
        super().__init__()
        self.patch_size = patch_size
        self.tokens = (image_size // patch_size) ** 2
        pixels = channels * patch_size**2
        flat = nn.init.orthogonal_(torch.empty(width, pixels))
        self.weight = nn.Parameter(flat.reshape(width, channels, patch_size, patch_size))
        self.place = nn.Parameter(torch.zeros(self.tokens, width))

    def forward(self, images: Tensor) -> Tensor:
        """Tokens of images (batch, channels, height, width)."""
        found = nn.functional.conv2d(images, self.weight, stride=self.patch_size)
        tokens = found.flatten(2).transpose(1, 2)
        if tokens.shape[1] != self.tokens:  # a single patch would be taken for all places
            raise ValueError(
                f"the model takes images of {self.tokens} patches, got {tokens.shape[1]}"
            )
        return tokens + self.place
