"""Two published vision transformers with published certificates, and their images.

They lie beside the repository, in ``../shared/models``: DeepT's network for MNIST (Bonaert et al.
2021), and the network ibp_3_3_8 of the neural network verification competition (VNN-COMP 2023).
Their norms are affine and folded into the maps that follow.
"""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from taut.networks import Heads, register

SHARED = Path(__file__).parents[2] / "shared"
MNIST_SCALE = 0.3081  # of normalised pixels: radii times this are in raw pixels


class FoldedTransformer(nn.Module):
    """Patches (batch, patches, pixels) to logits; a class token, residuals, ReLU."""

    def __init__(self, tensors: dict[str, torch.Tensor], heads: int, scale: float, pool: str):
        super().__init__()
        for name, value in tensors.items():
            if not name.startswith("check"):
                self.register_buffer(name, value.double())
        self.heads, self.scale, self.pool = heads, scale, pool
        self.layers = sum(name.startswith("Wq") for name in tensors)

    def map(self, name: str, layer: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Weight and bias of a map of one layer."""
        return getattr(self, f"W{name}{layer}"), getattr(self, f"b{name}{layer}")

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        """Logits."""
        linear = nn.functional.linear
        first = self.first.expand(len(patches), 1, -1)
        z = torch.cat((first, linear(patches, self.E) + self.be), dim=1)
        for layer in range(self.layers):
            last = layer == self.layers - 1 and self.pool == "cls"
            x = z[:, :1] if last else z
            q, k, v = (
                linear(y, *self.map(name, layer)).unflatten(-1, (self.heads, -1)).transpose(1, 2)
                for name, y in (("q", x), ("k", z), ("v", z))
            )
            o = torch.softmax(self.scale * q @ k.mT, dim=-1) @ v
            z = x + linear(o.transpose(1, 2).flatten(2), *self.map("o", layer))
            hidden = torch.relu(linear(z, *self.map("1", layer)))
            z = z + linear(hidden, *self.map("2", layer))
        return linear(z[:, 0] if self.pool == "cls" else z.mean(dim=1), self.Wh, self.bh)


@register(FoldedTransformer)
def _folded(run: Any, module: FoldedTransformer, x: Any) -> Any:
    z = run.prepend(run.shift(run.linear(x, module.E), module.be), module.first[None])
    for layer in range(module.layers):
        last = layer == module.layers - 1 and module.pool == "cls"
        maps = [module.map(name, layer) for name in ("q", "k", "v", "o")]
        heads = Heads(*maps, module.heads, module.heads, module.scale)
        y = run.first(z) if last else z
        y = run.add(y, run.attention(y, heads, context=z, name=f"layers.{layer}.attention"))
        first, second = module.map("1", layer), module.map("2", layer)
        z = run.add(y, run.mlp(y, first, torch.relu, second, f"layers.{layer}.mlp"))
    z = run.first(z) if module.pool == "cls" else run.mean(z)
    return run.linear(z, module.Wh, module.bh, "head")


def mnist(images: int) -> tuple[FoldedTransformer, torch.Tensor, torch.Tensor]:
    """DeepT's network, the first test images as normalised patches, and their labels."""
    folder = SHARED / "models" / "deept-mnist-vit"
    tensors = _tensors(folder)
    pixels, labels = mnist_images()
    x = (torch.from_numpy(pixels[:images].copy()).double() / 255 - 0.1307) / MNIST_SCALE
    patches = x.reshape(-1, 4, 7, 4, 7).permute(0, 1, 3, 2, 4).reshape(-1, 16, 49)
    net = FoldedTransformer(tensors, 4, 64**-0.5, "cls").eval()
    return net, patches, torch.from_numpy(labels[:images].copy()).long()


def mnist_images() -> tuple[Any, Any]:
    """The test images of MNIST (10000, 28, 28) and their labels."""
    folder = SHARED / "data" / "mnist"

    def read(name: str, header: int) -> Any:
        return np.frombuffer(gzip.open(folder / name).read(), np.uint8, offset=header)

    images = read("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28)
    return images, read("t10k-labels-idx1-ubyte.gz", 8)


def competition() -> tuple[FoldedTransformer, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The competition's network, its images, their labels, and the scale of a pixel of 1/255."""
    folder = SHARED / "models" / "vnncomp-vit-ibp-3-3-8"
    data = np.load(folder / "images.npz")
    mean = torch.tensor([0.4914, 0.4822, 0.4465]).double().reshape(3, 1, 1)
    deviation = torch.tensor([0.2023, 0.1994, 0.2010]).double().reshape(3, 1, 1)
    x = (torch.from_numpy(data["images"]).double() / 255 - mean) / deviation
    patches = x.reshape(-1, 3, 4, 8, 4, 8).permute(0, 2, 4, 1, 3, 5).reshape(-1, 16, 192)
    scale = (1 / 255 / deviation).reshape(3, 1).expand(3, 64).reshape(1, 192).expand(16, 192)
    net = FoldedTransformer(_tensors(folder), 3, 0.25, "mean").eval()
    return net, patches, torch.from_numpy(data["labels"]).long(), scale.clone()


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return load_file(folder / "folded.safetensors")
