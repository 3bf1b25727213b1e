"""Certified radii beside those of auto_LiRPA and of interval bounds: same images, one run.

``PYTHONPATH=path/to/auto_LiRPA python -m benchmarks.propagation_peers 10 1`` takes 10 images of
MNIST for CROWN and interval bounds, and the first of them for α-CROWN in l2, whose bounds take
40 s each. Without auto_LiRPA it is left out. The table is in docs/results/certified-radii.md.
"""

from __future__ import annotations

import math
import sys
import time
import warnings

import numpy as np
import torch

from benchmarks.auto_lirpa_peer import is_available, peer_radii
from benchmarks.propagation import interval_radius
from benchmarks.published_networks import MNIST_SCALE, mnist
from benchmarks.timing import table
from taut.networks import certified_radius

STEPS = {"CROWN": 8, "α-CROWN": 5}  # of a bisection between 0 and the attack's radius


def compared(images: int, few: int) -> str:
    """Mean radii in raw pixels, and seconds on one core."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the peer
    net, x, labels = mnist(2 * images)
    x = x[net(x).argmax(dim=1) == labels][:images]
    rows: list[list[str]] = []

    def enter(norm: float, method: str, radius: np.ndarray, cost: str = "") -> None:
        mean = f"{radius.mean() * MNIST_SCALE:.4g}"
        rows.append([f"l{norm:g}", method, str(len(radius)), mean, cost])
        print(rows[-1], flush=True)

    def peer(norm: float, method: str, most: np.ndarray) -> None:
        radius, seconds = peer_radii(net, x[: len(most)], most, norm, method, STEPS[method])
        enter(norm, f"auto_LiRPA {method}", radius, f"{seconds:.2f} s a bound")

    kept = {}
    for norm in (2, math.inf, 1):
        begin = time.process_time()
        found = certified_radius(net, x, norm=norm)
        seconds = (time.process_time() - begin) / images
        enter(norm, "taut", found.radius, f"{seconds:.2f} s an image")
        kept[norm] = attack = found.attack_radius(steps=30)
        enter(norm, "attack (upper limit)", attack)
        enter(norm, "interval bounds", interval_radius(net, x, norm))
        if is_available():
            peer(norm, "CROWN", attack)
    if is_available() and few:
        peer(2, "CROWN", kept[2][:few])
        peer(2, "α-CROWN", kept[2][:few])
    if not is_available():
        print("auto_LiRPA cannot be imported and was left out; put its checkout on PYTHONPATH.")
    return table(["norm", "method", "images", "mean radius", "cost"], rows)


if __name__ == "__main__":
    print(compared(int(sys.argv[1]), int(sys.argv[2])))
