"""Certified radii of classifiers: no attack may flip a class inside them."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from tests.helpers.architectures import case  # noqa: E402

nn = torch.nn


def trained(seed=0):
    """A small classifier of two rings, trained for a moment."""
    torch.manual_seed(seed)
    x = torch.randn(200, 2, dtype=torch.float64)
    y = (x.norm(dim=1) > 1.2).long()
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    net = net.double()
    optimiser = torch.optim.Adam(net.parameters(), 0.02)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    return net, x[:40]


def test_no_certified_input_can_be_flipped():
    net, x = trained()
    found = tt.certified_radius(net, x)
    assert (found.radius > 0).all()
    assert (found.predicted == net(x).argmax(dim=1).numpy()).all()
    assert (found.attack(steps=60, restarts=4) > 0).all()
    # on a grid of directions, which in two dimensions is nearly exhaustive
    angles = torch.linspace(0, 2 * torch.pi, 360, dtype=torch.float64)
    circle = torch.stack((angles.cos(), angles.sin()), dim=1)
    for index in range(len(x)):
        ring = x[index] + found.radius[index] * circle
        assert (net(ring).argmax(dim=1) == int(found.predicted[index])).all()


def test_the_last_layer_is_taken_exactly():
    """For a linear classifier the radius is the distance to the nearest boundary."""
    torch.manual_seed(0)
    layer = nn.Linear(6, 4).double()
    x = torch.randn(10, 6, dtype=torch.float64)
    found = tt.certified_radius(layer, x, steps=60)
    logits, weight = layer(x).detach().numpy(), layer.weight.detach().numpy()
    for index in range(10):
        y = logits[index].argmax()
        distances = [
            (logits[index, y] - logits[index, j]) / np.linalg.norm(weight[y] - weight[j])
            for j in range(4)
            if j != y
        ]
        assert found.radius[index] == pytest.approx(min(distances), rel=1e-9)
        assert found.radius[index] <= min(distances)
        plain = found.margin[index] / (2**0.5 * float(np.linalg.norm(weight, 2)))
        assert plain <= found.radius[index] * (1 + 1e-9)


def test_a_radius_that_is_too_large_is_refuted():
    net, x = trained()
    found = tt.certified_radius(net, x)
    wrong = dataclasses.replace(found, radius=found.radius + 2.5)
    assert (wrong.attack() <= 0).any()


@pytest.mark.parametrize("name", ["bert classifier", "vit classifier", "dinov2 classifier"])
def test_transformers_that_classify(name):
    model, x, _ = case(name, gain=2.0, batch=3)
    found = tt.certified_radius(model, x)
    assert (found.radius > 0).all()
    assert (found.attack() > 0).all()
    # the constant of the features within the radius is what was used
    again = tt.certify(model, taut.At(x, torch.from_numpy(found.radius)), measure=False)
    assert (again.output.last.features.lip <= found.lipschitz * (1 + 1e-9)).all()


def test_rounding_takes_from_the_margin():
    model, x, _ = case("vit classifier", gain=2.0)
    wide = tt.certified_radius(model, x)
    narrow = tt.certified_radius(model.float(), x.float())
    assert (narrow.radius <= wide.radius).all()
    free = tt.certified_radius(model, x.float(), executed=False)
    assert (free.radius >= narrow.radius).all()


def test_a_tie_has_no_radius():
    layer = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
    found = tt.certified_radius(layer, torch.tensor([[1.0, 1.0], [2.0, 1.0]]).double())
    assert found.radius[0] == 0
    assert found.radius[1] > 0
