"""Certified radii of classifiers: no attack may flip a class inside them."""

from __future__ import annotations

import dataclasses
import itertools

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
    found = tt.certified_radius(layer, x, steps=60, tolerance=1e-12)
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


@pytest.mark.parametrize("norm", [1, 2, float("inf")])
def test_radii_in_every_norm_survive_attacks(norm):
    net, x = trained()
    found = tt.certified_radius(net, x[:10], norm=norm)
    assert found.norm == norm
    assert found.rounding == "proved"
    assert found.finished.all()
    assert (found.attack() > 0).all()
    limit = found.attack_radius()
    assert (found.radius <= limit).all()
    assert (found.radius > 0.3 * limit).mean() > 0.5
    assert (found.first_order > 0.5 * found.radius).all()


def test_the_order_of_the_norms():
    """The ball of l1 lies in that of l2, which lies in that of linf."""
    net, x = trained()
    one, two, most = (
        tt.certified_radius(net, x[:10], norm=norm).radius for norm in (1, 2, float("inf"))
    )
    assert (most <= two * 1.01).all()
    assert (two <= one * 1.01).all()


def test_some_tokens_may_move_farther_than_all():
    model, x, _ = case("bert classifier", gain=2.0, batch=1)
    whole = tt.certified_radius(model, x, norm=float("inf"), steps=5)
    word = tt.certified_radius(model, x, norm=float("inf"), tokens=[1], steps=5)
    assert (word.radius > whole.radius).all()


def test_a_time_limit_keeps_what_was_certified():
    net, x = trained()
    found = tt.certified_radius(net, x[:3], time_limit=0.0)
    assert not found.finished.any()
    assert not found.radius.any()


def test_time_may_run_out_anywhere(monkeypatch):
    net, x = trained()
    whole = tt.certified_radius(net, x[:1])
    for limit in range(1, 40, 2):
        with monkeypatch.context() as patch:
            patch.setattr("time.monotonic", itertools.count().__next__)
            found = tt.certified_radius(net, x[:1], time_limit=limit)
        assert found.radius <= whole.radius
        assert not found.finished.all() or found.radius == whole.radius


def test_a_radius_that_is_too_large_is_refuted():
    net, x = trained()
    found = tt.certified_radius(net, x)
    wrong = dataclasses.replace(found, radius=found.radius + 2.5)
    assert (wrong.attack() <= 0).any()


@pytest.mark.parametrize("name", ["bert classifier", "vit classifier", "dinov2 classifier"])
def test_transformers_that_classify(name):
    model, x, _ = case(name, gain=2.0, batch=1)
    found = tt.certified_radius(model, x)
    assert (found.radius > 0).all()
    assert (found.attack() > 0).all()
    assert (found.radius <= found.attack_radius(steps=10)).all()
    # the radius is what propagated bounds allow, and not a thousandth more
    rows = tt.margins(found.predicted, 3)
    inside = tt.propagate(model, taut.At(x, found.radius), targets=rows, executed=True)
    assert (inside.bound.lower > 0).all()
    beyond = tt.propagate(model, taut.At(x, found.radius * 1.002), targets=rows, executed=True)
    assert (beyond.bound.lower.min(axis=1) <= 0).all()


def test_rounding_takes_from_the_margin():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)).double()
    x, fine = torch.randn(3, 6, dtype=torch.float64), {"tolerance": 1e-8, "steps": 60}
    wide = tt.certified_radius(net, x, **fine)
    narrow = tt.certified_radius(net.float(), x.float(), **fine)
    assert (narrow.radius < wide.radius * (1 - 1e-7)).all()
    free = tt.certified_radius(net, x.float(), executed=False, **fine)
    assert (free.radius > narrow.radius * (1 + 1e-7)).all()


def test_a_tie_has_no_radius():
    layer = nn.Linear(2, 2, bias=False).double()
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
    found = tt.certified_radius(layer, torch.tensor([[1.0, 1.0], [2.0, 1.0]]).double())
    assert found.radius[0] == 0
    assert found.radius[1] > 0
