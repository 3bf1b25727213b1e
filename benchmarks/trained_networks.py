"""Vision transformers with real LayerNorm and GELU, trained on MNIST and certified.

``python -m benchmarks.trained_networks LAYERS IMAGES [ordinary|smooth] [SEED]`` trains on 9,000 of
the 10,000 test images of MNIST, which are what lies beside the repository, and certifies some of
the other 1,000. How a network is trained to be smooth is told in ``benchmarks.smooth_training``.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import torch
from torch import nn

from benchmarks.published_networks import MNIST_SCALE, mnist_images
from benchmarks.smooth_training import train_smooth
from benchmarks.targeted_attack import changed, smallest_change
from taut.networks import certified_radius, register

TRAINED = 9000


class SmallTransformer(nn.Module):
    """16 patches and a class token, width 64, four heads, norms first, GELU."""

    def __init__(self, layers: int, width: int = 64) -> None:
        super().__init__()
        self.patch = nn.Linear(49, width)
        self.first = nn.Parameter(torch.randn(1, width) * 0.02)
        self.places = nn.Parameter(torch.randn(17, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 128, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.head = nn.Linear(width, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of patches (batch, 16, 49)."""
        z = torch.cat((self.first.expand(len(x), 1, -1), self.patch(x)), dim=1) + self.places
        return self.head(self.encoder(z)[:, 0])


@register(SmallTransformer)
def _small(run: Any, module: SmallTransformer, x: Any) -> Any:
    z = run.prepend(run(module.patch, x, "patch"), module.first)
    z = run(module.encoder, run.shift(z, module.places), "encoder")
    return run(module.head, run.first(z), "head")


def patches() -> tuple[torch.Tensor, torch.Tensor]:
    """All images as normalised patches, and their labels."""
    pixels, labels = mnist_images()
    x = (torch.from_numpy(pixels.copy()).float() / 255 - 0.1307) / MNIST_SCALE
    x = x.reshape(-1, 4, 7, 4, 7).permute(0, 1, 3, 2, 4).reshape(-1, 16, 49)
    return x, torch.from_numpy(labels.copy()).long()


def train(layers: int, way: str = "ordinary", seed: int = 0, epochs: int = 14) -> SmallTransformer:
    """AdamW with one cycle of the learning rate; about half a minute, or two if smooth."""
    torch.manual_seed(seed)
    x, labels = (part[:TRAINED] for part in patches())
    net = SmallTransformer(layers)
    if way == "smooth":
        train_smooth(net, x, labels, epochs)
        return net.eval()
    optimiser = torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=0.05)
    steps = epochs * (TRAINED // 100)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for _ in range(epochs):
        for batch in torch.split(torch.randperm(TRAINED), 100):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), labels[batch]).backward()
            optimiser.step()
            schedule.step()
    return net.eval()


def main(layers: int, images: int, way: str = "ordinary", seed: int = 0) -> None:
    """Print the accuracy, and radii in l2 as they are found, in raw pixels."""
    torch.set_num_threads(1)
    net = train(layers, way, seed)
    x, labels = (part[TRAINED:] for part in patches())
    with torch.no_grad():
        right = net(x).argmax(dim=1) == labels
    print(f"accuracy {right.float().mean():.3f}", flush=True)
    net = net.double()
    certified, attacked = [], []
    for one, label in zip(x[right][:images].double(), labels[right].tolist(), strict=False):
        begin = time.process_time()
        found = certified_radius(net, one[None], steps=9, tolerance=0.03)
        seconds = time.process_time() - begin
        radius = float(found.radius[0])
        assert found.attack(steps=20)[0] > 0
        assert not changed(net, one, label, radius * (1 - 1e-6))
        certified.append(radius * MNIST_SCALE)
        attacked.append(smallest_change(net, one, label, 0.5 / MNIST_SCALE) * MNIST_SCALE)
        share = sum(certified) / sum(attacked)
        print(
            f"certified {certified[-1]:.4f}, attack {attacked[-1]:.4f}, {seconds:.0f} s; "
            f"mean {sum(certified) / len(certified):.4f}, {share:.3f} of the attack",
            flush=True,
        )


if __name__ == "__main__":
    given = dict(enumerate(sys.argv))
    main(int(given[1]), int(given[2]), given.get(3, "ordinary"), int(given.get(4, "0")))
