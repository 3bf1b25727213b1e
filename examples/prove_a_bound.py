"""You prove a bound: the constant in your norm, on your domain, with the theorem behind it.

From one softmax to an attention layer to the certified radius of a classifier. Needs the extra
torch for the last one.
"""

import math

import numpy as np
import torch

import taut


def main() -> None:
    """Print bounds with their theorems."""
    print(taut.global_lipschitz(p=3))  # the best constant for all logits
    print(taut.local_lipschitz([2.0, 1.0, 0.0], p=2))  # exactly, at these logits
    print(taut.local_lipschitz([2.0, 1.0, 0.0], p=math.inf, radius=0.1))  # in a box around them

    rng = np.random.default_rng(0)
    layer = taut.attention.Layer(*rng.normal(size=(3, 8, 8)) / 3, heads=2)
    bound = taut.attention.dot_product_ball(layer, taut.Ball(2.0), n=10)
    print(bound)
    for name in bound.theorem:
        print(f"{name}: {taut.theorems.get(name).statement}")

    torch.manual_seed(0)
    layers = torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3)
    classifier = torch.nn.Sequential(*layers).double()
    found = taut.networks.certified_radius(classifier, torch.randn(2, 4, dtype=torch.float64))
    for radius in found.radius.tolist():
        print(f"The class cannot change within an l2 distance of {radius:.4f}.")


if __name__ == "__main__":
    main()
