"""Bounds on sign patterns of ReLUs are never exceeded, and are exact where they say so."""

from __future__ import annotations

import math
import random

import pytest

torch = pytest.importorskip("torch")
from taut.networks.propagation.attention_below import (  # noqa: E402
    first_choices,
    narrow,
    tangent_limits,
)
from taut.networks.propagation.attention_node import AttentionNode  # noqa: E402
from taut.networks.propagation.node import UnboundedError  # noqa: E402
from taut.networks.propagation.record import record  # noqa: E402
from taut.networks.propagation.rows import Rows  # noqa: E402
from taut.networks.propagation.value_reference import ValueReference  # noqa: E402
from taut.networks.verification.condensed import Condensed  # noqa: E402
from taut.networks.verification.root import bound_root  # noqa: E402
from taut.networks.verification.split_bounds import Branches, SplitBounds  # noqa: E402
from tests.helpers.propagation_attack import directions, engine_of  # noqa: E402
from tests.helpers.random_networks import random_network  # noqa: E402

nn = torch.nn
CPU = torch.device("cpu")
NORMS = (1, 2, math.inf)


def points_near(x, radius, norm, seed, many=8):
    """Points of a ball, some of them on its boundary."""
    steps = directions(tuple(x.shape[1:]), norm, many, seed) * (radius * (1 - 1e-12))
    steps[many // 2 :] *= torch.rand(many - many // 2, *[1] * (x.ndim - 1), dtype=torch.float64)
    return x + steps


def values_at(engine, question, point):
    """How far all nodes are from their centres at a point."""
    tape = record(question.at(point[None]), 0, CPU)
    return [one.centre - node.centre for one, node in zip(tape, engine.nodes, strict=True)]


def relu_values(relus, moved):
    """Deviations of the inputs and outputs of the undecided ReLUs."""
    none = torch.zeros(0, dtype=torch.float64)
    inner = [moved[node.parents[0].index].flatten()[node.bent] for node in relus.hinges]
    outer = [moved[node.index].flatten()[node.bent] for node in relus.hinges]
    return torch.cat([none, *inner]), torch.cat([none, *outer])


def relu_network(seed):
    """A small network with undecided ReLUs: a perceptron, or one with attention and residuals."""
    torch.manual_seed(seed)
    if seed % 2:
        net = nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5), nn.LeakyReLU(0.2),
                            nn.Linear(5, 2))  # fmt: skip
        return net.double(), torch.randn(1, 3, dtype=torch.float64)
    layer = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True, norm_first=True)
    net = nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    return net.double().eval(), torch.randn(1, 3, 3, dtype=torch.float64)


def condensed_of(net, x, radius, norm):
    engine, question = engine_of(net, x, radius, norm)
    return Condensed(engine), question


def check_condensed(relus, question, points):
    """Inputs of ReLUs are where the condensed network says, from both sides."""
    engine = relus.engine
    units = torch.where(engine.inputs.scale > 0, engine.inputs.scale, 1.0)
    for point in points:
        moved = values_at(engine, question, point)
        delta = (moved[0] / units)[engine.inputs.moving].flatten()
        inner, outer = relu_values(relus, moved)
        assert (relus.centre + inner >= relus.low).all()
        assert (relus.centre + inner <= relus.high).all()
        of = relus.inputs
        told = of.linear @ delta + of.outer @ outer + of.shift
        assert ((inner - told).abs() <= of.error + 1e-12 * (1 + inner.abs())).all()


@pytest.mark.theorem("split-multipliers", "holds")
@pytest.mark.parametrize("block", range(3))
def test_condensed_networks_hold_at_every_point(block):
    undecided = 0
    for seed in range(15 * block, 15 * block + 15):
        net, x = random_network(seed) if seed % 3 else relu_network(seed)
        random.seed(seed)
        norm, radius = random.choice(NORMS), 10 ** random.uniform(-1.5, 0)
        try:
            relus, question = condensed_of(net, x, radius, norm)
        except UnboundedError:
            continue
        undecided += sum(relus.counts)
        check_condensed(relus, question, points_near(x, radius, norm, seed))
    assert undecided > 5


def random_branch(relus, inner, seed):
    """Signs that a point has, at random places; any slopes, and any multipliers ≥ 0."""
    torch.manual_seed(seed)
    shape = (1, len(inner))
    signs = torch.where(relus.centre + inner >= 0, 1.0, -1.0).double().reshape(shape)
    signs = signs * (torch.rand(shape) < 0.5)
    slopes = relus.left + (1 - relus.left) * torch.rand(shape, dtype=torch.float64)
    multipliers = torch.rand(shape, dtype=torch.float64).log().neg() * 0.3
    return Branches(signs, slopes, multipliers, torch.full((1,), -torch.inf).double())


def branch_gaps(seed, norm, flip=1.0):
    """How far values of a function are above its bound, on branches that hold the point."""
    net, x = relu_network(seed)
    radius = {1: 0.6, 2: 0.4, math.inf: 0.2}[norm]
    relus, question = condensed_of(net, x, radius, norm)
    torch.manual_seed(seed)
    last = relus.engine.nodes[-1]
    rows = torch.randn(1, last.tokens, last.width, dtype=torch.float64)
    root = bound_root(relus, rows, torch.zeros(1, dtype=torch.float64))
    bounds = SplitBounds(relus)
    bounds.tighten(root.slopes, 4)
    gaps = []
    for number, point in enumerate(points_near(x, radius, norm, seed)):
        moved = values_at(relus.engine, question, point)
        value = float((rows[0] * (moved[-1] + last.centre)).sum())
        assert value >= root.lower
        inner, _ = relu_values(relus, moved)
        assert (relus.centre + inner >= bounds.low).all()
        assert (relus.centre + inner <= bounds.high).all()
        branch = random_branch(relus, inner, number)
        branch.multipliers *= flip
        found, _ = bounds.look(root.function, branch)
        inputs = relus.engine.inputs
        delta = (moved[0] / inputs.scale).flatten()  # all tokens move
        # the affine function below, at this very point
        here = found + inputs.reach(bounds.linear) * (1 - 1e-9) + bounds.linear @ delta
        gaps.append(value - float(here) + 1e-12)
        if flip > 0:
            bounds.improve(root.function, branch, 6, goal=math.inf)
            assert value >= float(branch.lower)
    return gaps


@pytest.mark.theorem("split-multipliers", "holds")
@pytest.mark.parametrize("norm", NORMS)
def test_bounds_of_branches_hold(norm):
    for seed in range(6):
        assert min(branch_gaps(seed, norm)) >= 0


@pytest.mark.theorem("split-multipliers", "falsifiable")
def test_multipliers_of_the_wrong_sign_are_exceeded():
    assert min(min(branch_gaps(seed, math.inf, flip=-8.0)) for seed in range(1, 12, 2)) < 0


@pytest.mark.theorem("split-multipliers", "attained")
def test_a_known_sign_makes_a_perceptron_exact():
    """relu(−x − ¼) − relu(x − ¼) on |x| ≤ 1, least at x = 1."""
    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        net[0].bias.copy_(torch.tensor([-0.25, -0.25]))
        net[2].weight.copy_(torch.tensor([[-1.0, 1.0]]))
        net[2].bias.zero_()
    relus, _ = condensed_of(net, torch.zeros(1, 1, dtype=torch.float64), 1.0, math.inf)
    of = bound_root(relus, torch.ones(1, 1, 1).double(), torch.zeros(1).double())
    bounds = SplitBounds(relus)
    one = torch.ones(1, 2, dtype=torch.float64)
    whole = Branches(0 * one, of.slopes, 0 * one, -one[:, 0])
    split = Branches(torch.tensor([[1.0, -1.0]]).double(), one, 0 * one, -one[:, 0])
    bounds.improve(of.function, whole, 60, goal=math.inf)
    bounds.improve(of.function, split, 60, goal=math.inf)
    assert float(split.lower) == pytest.approx(-0.75, abs=1e-9)
    assert float(whole.lower) <= float(split.lower) + 1e-12


def attention_gap(seed, norm, share=1.0):
    """How far values are above bounds of attention from below, for random choices."""
    torch.manual_seed(seed)
    net = nn.MultiheadAttention(6, 2, batch_first=True).double().eval()
    with torch.no_grad():
        net.in_proj_weight.mul_(2)
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    radius = {1: 0.3, 2: 0.15, math.inf: 0.05}[norm] * 10 ** (-2 * random.random())
    engine, question = engine_of(net, x, radius, norm)
    (node,) = (each for each in engine.nodes if isinstance(each, AttentionNode))
    if not narrow(node):
        return None
    rows = Rows(torch.randn(5, 4, 6, dtype=torch.float64))
    before = engine.carry([(engine.nodes[-1], rows)], lower=True)
    assert node.asked is not None
    node.reference = ValueReference(node.change, node.asked)
    node.choices = first_choices(node)
    plain = engine.carry([(engine.nodes[-1], rows)], lower=True)
    _, far = tangent_limits(node)
    node.choices.tangents = (2 * torch.rand_like(node.p) - 1)[None] * far
    node.choices.corners = (2 * torch.rand_like(node.p) - 1)[None]
    scores, remainder = node.found
    node.found = (
        scores._replace(centred=share * scores.centred, bilinear=share * scores.bilinear),
        remainder._replace(change=share * remainder.change, gap=share * remainder.gap),
    )
    chosen = engine.carry([(engine.nodes[-1], rows)], lower=True, keep=True)
    gaps = []
    for point in points_near(x, radius, norm, seed, 30):
        nodes = values_at(engine, question, point)
        value = (rows.values * nodes[-1]).flatten(1).sum(dim=1)
        assert (value >= before.shift - before.half).all()
        assert (value >= plain.shift - plain.half).all()
        here = chosen.linear.values @ (nodes[0] / radius).flatten() + chosen.shift
        gaps.append(float((value - here + chosen.error + chosen.rounding).min()))
    better = (plain.shift - plain.half) - (before.shift - before.half)
    return min(gaps), float(better[0])


@pytest.mark.theorem("affine-attention-below", "holds")
@pytest.mark.parametrize("norm", NORMS)
def test_attention_from_below_holds_for_all_choices(norm):
    random.seed(0)
    found = [attention_gap(seed, norm) for seed in range(25)]
    kept = [each for each in found if each is not None]
    assert len(kept) > 10
    assert min(gap for gap, _ in kept) >= 0
    if norm == math.inf:  # the row that is the reference gains by it, mostly
        assert sum(better > 0 for _, better in kept) > len(kept) / 2


@pytest.mark.theorem("affine-attention-below", "falsifiable")
def test_attention_does_not_stay_within_a_tenth_of_its_limits():
    random.seed(0)
    found = [attention_gap(seed, math.inf, share=0.1) for seed in range(25)]
    assert min(each[0] for each in found if each is not None) < 0


@pytest.mark.theorem("affine-attention-below", "attained")
def test_attention_over_equal_values_is_bounded_exactly():
    torch.manual_seed(0)
    net = nn.MultiheadAttention(4, 1, batch_first=True).double().eval()
    with torch.no_grad():
        net.in_proj_weight[8:] = 0.0
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    engine, _ = engine_of(net, x, 0.01, 2)
    (node,) = (each for each in engine.nodes if isinstance(each, AttentionNode))
    rows = Rows(torch.randn(2, 3, 4, dtype=torch.float64))
    engine.carry([(engine.nodes[-1], rows)], lower=True)
    node.reference, node.choices = ValueReference(node.change, node.asked), first_choices(node)
    found = engine.carry([(engine.nodes[-1], rows)], lower=True)
    assert (found.shift - found.half > -1e-9).all()


@pytest.mark.theorem("l1-near-reference", "holds")
@pytest.mark.theorem("l1-near-reference", "attained")
@pytest.mark.theorem("l1-near-reference", "falsifiable")
def test_radii_near_a_reference():
    """Never too small, exact at the reference, and not at other rows."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 6), nn.MultiheadAttention(6, 2, batch_first=True))
    x = torch.randn(1, 4, 8, dtype=torch.float64)
    engine, _ = engine_of(net[1].double().eval(), x[..., :6], 0.05, math.inf)
    (node,) = (each for each in engine.nodes if isinstance(each, AttentionNode))
    first = torch.randn(2, 4, 3, dtype=torch.float64)
    near = ValueReference(node.change, first)
    others = first + 0.3 * torch.randn(20, 2, 4, 3, dtype=torch.float64)
    rows = torch.cat((first[None], others))
    change = node.change
    true = engine.inputs.reach(torch.einsum("shid,hjdk->shijk", rows, change.linear))
    found = near.reach(rows)
    assert (found >= true).all()
    # without the least weight of an entry it is exact at the reference
    assert float((found[0] / true[0]).max()) < 1.05
    near.total = near.total * 0.8
    assert not (near.reach(rows) >= true).all()
