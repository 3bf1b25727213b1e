"""Certified radii beside those of auto_LiRPA and of interval bounds: same images, one run.

``PYTHONPATH=path/to/auto_LiRPA python -m benchmarks.propagation_peers 10 2`` takes 10 images of
MNIST for CROWN and interval bounds, and the first 2 of them for α-CROWN in l2, whose bounds take
40 s each. Without auto_LiRPA it is left out. The table is in docs/results/certified-radii.md.
"""

from __future__ import annotations

import math
import sys
import time
import warnings

import torch

from benchmarks.auto_lirpa_peer import is_available, peer_radii
from benchmarks.propagation import interval_radius
from benchmarks.published_networks import MNIST_SCALE, mnist
from benchmarks.timing import table
from taut.networks import certified_radius

STEPS = {"CROWN": 12, "α-CROWN": 7}  # of a bisection between 0 and the attack's radius


def compared(images: int, few: int) -> str:
    """Mean radii in raw pixels, and seconds on one core."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the peer
    net, x, labels = mnist(2 * images)
    x = x[net(x).argmax(dim=1) == labels][:images]
    rows = []
    for norm in (1, 2, math.inf):
        begin = time.process_time()
        found = certified_radius(net, x, norm=norm)
        seconds = (time.process_time() - begin) / images
        attack = found.attack_radius(steps=30)
        lines = [
            ("attack (upper limit)", attack, ""),
            ("taut", found.radius, f"{seconds:.2f} s an image"),
            ("interval bounds", interval_radius(net, x, norm), ""),
        ]
        methods = ["CROWN"] * is_available() + ["α-CROWN"] * (is_available() and norm == 2)
        for method in methods:
            many = images if method == "CROWN" else few
            radius, each = peer_radii(net, x[:many], attack[:many], norm, method, STEPS[method])
            lines.append((f"auto_LiRPA {method}", radius, f"{each:.2f} s a bound"))
            if many < images:
                lines.append((f"taut, the same {many} images", found.radius[:many], ""))
        for name, values, took in lines:
            mean = f"{values.mean() * MNIST_SCALE:.4g}"
            rows.append([f"l{norm:g}", name, str(len(values)), mean, took])
            print(rows[-1], flush=True)
    if not is_available():
        print("auto_LiRPA cannot be imported and was left out; put its checkout on PYTHONPATH.")
    return table(["norm", "method", "images", "mean radius", "cost"], rows)


if __name__ == "__main__":
    print(compared(int(sys.argv[1]), int(sys.argv[2])))
