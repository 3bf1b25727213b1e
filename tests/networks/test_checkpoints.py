"""Checkpoints with ellipsoids: no bound is exceeded, and deep networks lose little."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from taut.networks.operations.activation_slopes import activation_of  # noqa: E402
from taut.networks.propagation import attention_source, engine  # noqa: E402
from taut.networks.propagation.activation_lines import lines  # noqa: E402
from taut.networks.propagation.activation_source import polynomial  # noqa: E402
from taut.networks.propagation.checkpoint import forks, passages  # noqa: E402
from taut.networks.propagation.ellipsoid import boxed, combined, product, root, turned  # noqa: E402
from taut.networks.propagation.node import UnboundedError  # noqa: E402
from taut.networks.propagation.record import record  # noqa: E402
from taut.networks.question import ask  # noqa: E402
from tests.helpers.propagation_attack import (  # noqa: E402
    CPU,
    check_every_bound,
    directions,
    engine_of,
    worst_steps,
)
from tests.helpers.random_networks import random_network  # noqa: E402

nn = torch.nn
NORMS = (1, 2, math.inf)
F64 = torch.float64


def encoder(layers, *, first=False, width=8, seed=0):
    """A transformer encoder in float64."""
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(
        width, 2, 2 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=first
    )
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False).double().eval()


def some_ellipsoid(size, seed):
    source = torch.Generator().manual_seed(seed)
    factor = torch.randn(size, size, generator=source, dtype=F64)
    return factor @ factor.mT


@pytest.fixture
def always(monkeypatch):
    """All rows end at the last checkpoint."""
    monkeypatch.setattr(engine, "WORK", 0.0)


@pytest.mark.theorem("affine-checkpoint", "holds")
@pytest.mark.parametrize("block", range(2))
def test_every_bound_of_random_networks_holds(block, always):
    ended = 0
    for seed in range(1000 + 15 * block, 1015 + 15 * block):
        net, x = random_network(seed)
        norm, radius = random.choice(NORMS), 10 ** random.uniform(-4, 0.3)
        steps = directions(tuple(x.shape[1:]), norm, 12, seed) * radius
        steps[6:] *= torch.rand(6, 1, 1, dtype=F64)
        try:
            found, question = engine_of(net, x, radius, norm, checkpoints=True)
        except UnboundedError:
            continue
        ended += found.checkpoint is not None and found.checkpoint[0] > 0
        check_every_bound(found, question, x + steps)
    assert ended > 4


@pytest.mark.theorem("affine-checkpoint", "holds")
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("norm", NORMS)
def test_attacks_stay_within_deep_encoders(first, norm, always, monkeypatch):
    net = encoder(3, first=first)
    x = torch.randn(1, 3, 8, dtype=F64, generator=torch.Generator().manual_seed(1))
    radius = {1: 0.05, 2: 0.02, math.inf: 0.005}[norm]
    used = []
    plain = attention_source.products

    def spy(*arguments):
        used.append(plain(*arguments))
        return used[-1]

    monkeypatch.setattr(attention_source, "products", spy)
    found, question = engine_of(net, x, radius, norm, checkpoints=True)
    assert len(used) == 3
    # norms first lie between queries and the checkpoint, where products are not known
    assert all((each is None) == first for each in used)
    goals = torch.randn(6, 24, dtype=F64, generator=torch.Generator().manual_seed(2))
    steps = worst_steps(net, x[0], norm, radius, goals, steps=6)
    assert check_every_bound(found, question, x + steps, rows=2) > 0.3


@pytest.mark.theorem("affine-checkpoint", "falsifiable")
def test_errors_that_are_left_out_are_missed(always):
    """Without its ellipsoids a checkpoint promises too much."""
    net, x = encoder(3, seed=3), torch.randn(1, 3, 8, dtype=F64)
    found, question = engine_of(net, x, 0.3, 2, checkpoints=True)
    goals = torch.randn(8, 24, dtype=F64)
    steps = worst_steps(net, x[0], 2, 0.3, goals, steps=10)
    check_every_bound(found, question, x + steps)
    assert found.checkpoint is not None
    checkpoint = found.checkpoint[1]
    checkpoint.errors = checkpoint.errors * 0
    with pytest.raises(AssertionError):
        check_every_bound(found, question, x + steps)


@pytest.mark.theorem("affine-checkpoint", "attained")
def test_linear_networks_lose_nothing(always):
    net = nn.Sequential(nn.Linear(4, 6), nn.Linear(6, 4)).double()
    x = torch.randn(1, 2, 4, dtype=F64)
    low, high = (
        tt.propagate(net, taut.At(x, 0.5), checkpoints=each).bound.upper for each in (False, True)
    )
    assert np.allclose(low, high, rtol=1e-10)


@pytest.mark.parametrize("first", [False, True])
def test_checkpoints_are_about_as_tight_as_plain_rows(first, always):
    """Compared with rows that are carried to the input, at a radius where second order shows."""
    net, x = encoder(4, first=first, width=16, seed=5), torch.randn(1, 4, 16, dtype=F64)
    targets = torch.randn(5, 4, 16, dtype=F64)
    widths = []
    for checkpoints in (False, True):
        found = tt.propagate(net, taut.At(x, 0.01), targets=targets, checkpoints=checkpoints)
        widths.append((found.bound.upper - found.bound.lower).mean())
        assert ("affine-checkpoint" in found.bound.theorem) == checkpoints
    assert widths[1] < 1.3 * widths[0]


def test_small_networks_have_no_checkpoints():
    found, _ = engine_of(encoder(1), torch.randn(1, 3, 8, dtype=F64), 0.1, 2)
    assert found.checkpoint is None


def test_time_limits_hold_with_checkpoints():
    x = torch.randn(1, 3, 8, dtype=F64)
    found = tt.propagate(encoder(2), taut.At(x, 0.1), checkpoints=True, time_limit=1e-9)
    assert np.isinf(found.bound.upper).all()


@pytest.mark.parametrize("first", [False, True])
def test_passages_are_where_all_paths_meet(first):
    question, _ = ask(
        encoder(2, first=first), taut.At(torch.randn(1, 3, 8)), None, None, None, "l2", 0
    )
    nodes = record(question, 0, CPU)
    for index in passages(nodes):
        jumps = [
            (parent.index, node.index)
            for node in nodes
            for parent in node.parents
            if parent.index < index < node.index
        ]
        assert not jumps
    assert len(forks(nodes) & passages(nodes)) >= 4  # before each block


@pytest.mark.theorem("ellipsoid-sum", "holds")
@pytest.mark.theorem("ellipsoid-sum", "attained")
@pytest.mark.theorem("ellipsoid-sum", "falsifiable")
def test_a_sum_of_ellipsoids_is_inside_the_combined_one():
    parts = [some_ellipsoid(5, seed) * 4.0**seed for seed in range(3)]
    a = torch.randn(200, 5, dtype=F64)
    whole = root(a, combined(parts))
    apart = torch.stack([root(a, part) for part in parts]).sum(dim=0)
    assert (apart <= whole).all()
    one = [parts[0], 9 * parts[0]]
    same = torch.stack([root(a, part) for part in one]).sum(dim=0)
    assert torch.allclose(root(a, combined(one)), same, rtol=1e-6)
    assert (root(a, 0.9 * combined(one)) < same).all()


@pytest.mark.theorem("ellipsoid-sum", "holds")
def test_a_box_is_inside_its_ellipsoid():
    half = torch.rand(1, 6, dtype=F64)
    a = torch.randn(100, 6, dtype=F64)
    assert ((a.abs() * half).sum(dim=1) <= root(a, torch.diag(boxed(half)[0]))).all()


def test_maps_of_ellipsoids_agree_with_dense_products():
    joint, blocks = some_ellipsoid(6, 1), torch.randn(2, 4, 3, dtype=F64)
    token = torch.tensor([1, 0])
    dense = torch.zeros(8, 6, dtype=F64)
    dense[:4, 3:], dense[4:, :3] = blocks[0], blocks[1]
    expected = dense @ joint @ dense.mT
    assert torch.allclose(turned(joint, 2, blocks, token), expected, atol=1e-9)
    single = joint.reshape(2, 3, 2, 3).diagonal(dim1=0, dim2=2).permute(2, 0, 1)[token]
    assert torch.allclose(product(blocks, single)[0], expected[:4, :4], atol=1e-9)


@pytest.mark.theorem("ellipsoid-product", "holds")
@pytest.mark.theorem("ellipsoid-product", "attained")
@pytest.mark.theorem("ellipsoid-product", "falsifiable")
def test_products_of_entries_stay_in_the_product_of_matrices():
    source = torch.Generator().manual_seed(0)
    x, y = (torch.randn(7, 3, dtype=F64, generator=source) for _ in range(2))
    c = torch.randn(50, 7, dtype=F64, generator=source)
    limit = root(c, (x @ x.mT) * (y @ y.mT))
    form = torch.einsum("sj,jp,jq->spq", c, x, y)
    largest = torch.linalg.eigvalsh(form + form.mT).abs().amax(dim=1) / 2
    assert (largest <= limit).all()
    cube = root(c, (x @ x.mT) ** 3)
    z = directions((3,), 2, 300, 1)
    assert ((c @ (z @ x.mT).pow(3).mT).abs() <= cube[:, None]).all()
    ray = torch.outer(torch.randn(7, dtype=F64), torch.tensor([0.6, 0.8, 0.0], dtype=F64))
    exact = (c @ (ray.norm(dim=1).square() * 1.0)).abs()
    found = root(c, (ray @ ray.mT) ** 2)
    assert torch.allclose(found, exact, rtol=1e-6, atol=1e-7)
    assert (0.99 * found < exact).any()


@pytest.mark.theorem("affine-activation", "holds")
@pytest.mark.parametrize("kind", [nn.GELU, nn.SiLU, nn.Tanh, nn.Softplus, nn.Mish])
def test_polynomials_of_activations_hold_between_the_points_of_their_grid(kind):
    act = activation_of(kind())
    middle = torch.linspace(-4, 4, 81, dtype=F64)[None]
    for size in (1e-9, 1e-3, 0.1, 2.0):
        radius = torch.full_like(middle, size)
        slope = lines(act, middle, radius).slope
        first, square, cubic, rest = polynomial(act, middle, radius, slope)
        z = torch.linspace(-1, 1, 1777, dtype=F64)[:, None, None] * radius
        beyond = act.function(middle + z) - act.function(middle) - slope * z
        assert ((beyond - first * z - square * z**2 - cubic * z**3).abs() <= rest).all()
        if size >= 0.1:  # far from nothing, and of higher order than the square
            assert (rest.amax() < square.abs().amax() * size**2).all()
