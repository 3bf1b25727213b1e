"""The 1-Lipschitz network of deel-torchlip (Serrurier et al. 2021), to be measured beside ours."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from taut._base.optional import needing
from taut.networks import Interpreter, Region, register

WIDTH = 256


class RowNetwork(nn.Module):
    """Linear maps with sorted pairs between them, on images as rows."""

    def __init__(self, maps: list[nn.Module]) -> None:
        super().__init__()
        self.maps = nn.ModuleList(maps)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images."""
        x = images.flatten(1)
        for index, linear in enumerate(self.maps):
            x = linear(_sorted(x) if index else x)
        return x


def _sorted(x: Tensor) -> Tensor:
    """GroupSort2 of deel-torchlip, with the pairs half a width apart."""
    left, right = x.chunk(2, dim=-1)
    return torch.cat((torch.maximum(left, right), torch.minimum(left, right)), dim=-1)


def torchlip_network(layers: int, classes: int) -> RowNetwork:
    """Maps of deel-torchlip, normalised and made orthogonal as far as its iterations go."""
    with needing("the comparison needs deel-torchlip", "bench"):
        from deel import torchlip  # type: ignore[import-not-found, unused-ignore]
    widths = [784, *[WIDTH] * layers]
    pairs = list(zip(widths, [*widths[1:], classes], strict=True))
    maps = [torchlip.SpectralLinear(a, b) for a, b in pairs]
    return RowNetwork(maps)


def exported(model: nn.Module) -> Any:
    """The network with plain linear maps in place of those of deel-torchlip; others as they are."""
    if not isinstance(model, RowNetwork):
        return model
    with torch.no_grad():
        maps: Any = model.maps
        return RowNetwork([linear.vanilla_export() for linear in maps])


@register(RowNetwork)
def _rows(run: Interpreter, module: RowNetwork, x: Region) -> Region:
    run.explain("chain", "chain")
    places = torch.arange(x.tokens * x.width)[None]
    x = run.rearrange(x, places, "as a row")
    for index, linear in enumerate(module.maps):
        if index:
            x = run.sort_pairs(x)
        x = run(linear, x, f"maps.{index}")
    return x
