"""No propagated bound is ever exceeded, at no operation of odd networks, published or random."""

from __future__ import annotations

import math
import random

import pytest

torch = pytest.importorskip("torch")
import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from taut.networks.propagation.node import UnboundedError  # noqa: E402
from taut.networks.propagation.rows import Rows  # noqa: E402
from tests.helpers.places import SHARED  # noqa: E402
from tests.helpers.propagation_attack import (  # noqa: E402
    check_every_bound,
    directions,
    engine_of,
    worst_steps,
)
from tests.helpers.random_networks import random_network  # noqa: E402

nn = torch.nn
NORMS = (1, 2, math.inf)


def attacked(seed):
    """How much of a bound was used in one random network; None if it has no bound."""
    net, x = random_network(seed)
    norm, radius = random.choice(NORMS), 10 ** random.uniform(-4, 0.5)
    scale = random.choice([None, torch.rand(x.shape[1:], dtype=torch.float64)])
    steps = directions(tuple(x.shape[1:]), norm, 18, seed) * radius
    steps[9:] *= torch.rand(9, 1, 1, dtype=torch.float64)
    try:
        engine, question = engine_of(net, x, radius, norm, scale=scale)
        return check_every_bound(engine, question, x + steps * (1 if scale is None else scale))
    except UnboundedError:
        return None


@pytest.mark.theorem("affine-rows", "holds")
@pytest.mark.parametrize("block", range(6))
def test_every_bound_of_random_networks_holds(block):
    used = [attacked(seed) for seed in range(20 * block, 20 * block + 20)]
    assert sum(each is None for each in used) <= 4
    assert max(each for each in used if each is not None) > 0.9  # somewhere it is tight


@pytest.mark.theorem("affine-rows", "falsifiable")
def test_a_bound_that_is_too_small_is_exceeded():
    engine, question = engine_of(
        nn.Linear(4, 3).double(), torch.randn(1, 2, 4, dtype=torch.float64), 0.5, math.inf
    )
    steps = directions((2, 4), math.inf, 300, 0) * 0.5
    check_every_bound(engine, question, engine.nodes[0].centre + steps)
    shrunk = engine.inputs
    shrunk.scale = shrunk.scale * 0.6
    with pytest.raises(AssertionError):
        check_every_bound(engine, question, engine.nodes[0].centre + steps)


@pytest.mark.theorem("affine-rows", "attained")
@pytest.mark.parametrize("norm", NORMS)
def test_linear_networks_are_bounded_exactly(norm):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 4), nn.Identity(), nn.Linear(4, 3)).double()
    x = torch.randn(2, 5, dtype=torch.float64)
    found = tt.propagate(net, taut.At(x, 0.3), norm=norm)
    weight = (net[2].weight @ net[0].weight).detach()
    dual = {1: weight.abs().amax(1), 2: weight.norm(dim=1), math.inf: weight.abs().sum(1)}[norm]
    value = net(x).detach()
    assert found.bound.upper == pytest.approx((value + 0.3 * dual).numpy(), rel=1e-12)
    assert found.bound.lower == pytest.approx((value - 0.3 * dual).numpy(), rel=1e-12)
    assert (found.bound.upper >= (value + 0.3 * dual).numpy()).all()


def transformer(layers, *, norm_first, activation):
    torch.manual_seed(layers)
    layer = nn.TransformerEncoderLayer(
        8, 2, 12, batch_first=True, norm_first=norm_first, activation=activation
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).double().eval()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize(("layers", "activation"), [(1, "relu"), (2, "gelu")])
def test_gradient_attacks_stay_inside(norm, norm_first, layers, activation):
    net = transformer(layers, norm_first=norm_first, activation=activation)
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    radius = {1: 0.3, 2: 0.1, math.inf: 0.02}[norm]
    goals = torch.randn(6, 24, dtype=torch.float64)
    found = tt.propagate(net, taut.At(x, radius), norm=norm, targets=goals.reshape(6, 3, 8))
    steps = worst_steps(net, x[0], norm, radius, goals)
    values = (net(x + steps).flatten(1).reshape(2, 6, 24) * goals).sum(dim=-1).detach().numpy()
    assert (values.min(axis=0) >= found.bound.lower[0]).all()
    assert (values.max(axis=0) <= found.bound.upper[0]).all()
    # the attack uses a good part of the bound, so that a wrong one would be seen
    share = (values[1] - values[0]) / (found.bound.upper - found.bound.lower)[0]
    assert share.max() > 0.3


@pytest.mark.parametrize("eps", [2.0**-23, 2.0**-10])
def test_the_network_as_executed_stays_inside(eps):
    """Values that are rounded to few digits after every operation are within the executed bound."""
    net = transformer(1, norm_first=True, activation="gelu")
    x = torch.randn(1, 3, 8, dtype=torch.float64)
    engine, _question = engine_of(net, x, 1e-6, 2, eps=eps)
    plain, _ = engine_of(net, x, 1e-6, 2)
    rows = torch.randn(5, 3, 8, dtype=torch.float64)
    low, high = engine.interval([(engine.nodes[-1], Rows(rows))])
    inner = plain.interval([(plain.nodes[-1], Rows(rows))])
    assert (low < inner[0]).all()
    assert (high > inner[1]).all()
    kind = torch.float32 if eps < 1e-6 else torch.float16
    executed = net.to(kind)(x.to(kind)).double()[0]
    value = (rows * (executed - engine.nodes[-1].centre)).flatten(1).sum(dim=1)
    assert (value >= low).all()
    assert (value <= high).all()


@pytest.mark.skipif(not (SHARED / "models").exists(), reason="the published networks are not here")
@pytest.mark.parametrize("norm", NORMS)
def test_the_published_network_for_mnist(norm):
    from benchmarks.published_networks import MNIST_SCALE, mnist

    net, x, _ = mnist(3)
    found = tt.certified_radius(net, x, norm=norm)
    # DeepT's mean radii are 0.668, 0.191 and 0.0192
    assert (found.radius * MNIST_SCALE > {1: 0.7, 2: 0.2, math.inf: 0.015}[norm]).all()
    assert (found.attack(steps=20, restarts=1) > 0).all()
    assert (found.radius <= found.attack_radius(steps=20)).all()
    engine, question = engine_of(net, x[:1], float(found.radius[0]), norm)
    steps = directions((16, 49), norm, 6, 0) * float(found.radius[0])
    check_every_bound(engine, question, x[0] + steps)
