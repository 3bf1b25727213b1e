"""The relaxations behind propagated bounds: they hold, are tight somewhere, and can be refuted."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
flint = pytest.importorskip("flint")
from taut.networks.operations.activation_slopes import activation_of  # noqa: E402
from taut.networks.propagation.activation_lines import lines  # noqa: E402
from taut.networks.propagation.attention_scores import CAPPED  # noqa: E402
from taut.networks.propagation.input_set import InputSet  # noqa: E402
from taut.networks.propagation.record import record  # noqa: E402
from taut.networks.propagation.rows import Rows  # noqa: E402
from taut.networks.propagation.softmax_remainder import (  # noqa: E402
    beyond_linear,
    softmax_remainder,
)
from taut.networks.propagation.softmax_rows import JointRows  # noqa: E402
from tests.helpers.propagation_attack import (  # noqa: E402
    CPU,
    check_every_bound,
    directions,
    engine_of,
)
from tests.helpers.random_networks import ACTIVATIONS, Gated  # noqa: E402

nn = torch.nn
NORMS = (1, 2, math.inf)


def excess(act, middle, radius, found):
    """How far φ goes beyond its lines at most, on a fine grid of each interval."""
    t = middle + radius * torch.linspace(-1, 1, 1001, dtype=torch.float64)[:, None]
    with torch.no_grad():
        rest = act.function(t) - act.function(middle) - found.slope * (t - middle)
        below = None
        if found.below is not None:
            line = found.below * (t - middle) + found.floor
            below = float((line - (act.function(t) - act.function(middle))).max())
    return float((found.low - rest).max()), float((rest - found.high).max()), below


@pytest.mark.theorem("affine-activation", "holds")
@pytest.mark.parametrize("make", ACTIVATIONS)
def test_activations_lie_between_their_lines(make):
    torch.manual_seed(0)
    act = activation_of(make().double())
    middle = 2 * torch.randn(1500, dtype=torch.float64)
    radius = 10 ** (5 * torch.rand(1500, dtype=torch.float64) - 4)
    with torch.no_grad():
        found = lines(act, middle, radius)
    low, high, below = excess(act, middle, radius, found)
    assert low <= 0
    assert high <= 0
    assert below is None or below <= 0


@pytest.mark.theorem("affine-activation", "attained")
def test_the_chord_of_relu_touches_both_ends():
    act = activation_of(nn.ReLU())
    middle = torch.tensor([0.2], dtype=torch.float64)
    found = lines(act, middle, torch.tensor([1.0], dtype=torch.float64))
    for step in (-1.0, 1.0):
        value = max(0.2 + step, 0.0) - 0.2
        assert float(found.slope * step + found.high) == pytest.approx(value, abs=1e-12)


@pytest.mark.theorem("affine-activation", "falsifiable")
@pytest.mark.parametrize("make", [nn.ReLU, nn.GELU, nn.Tanh])
def test_narrower_lines_are_crossed(make):
    act = activation_of(make())
    middle, radius = torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    found = lines(act, middle, radius)
    width = found.high - found.low
    narrow = found._replace(high=found.high - 0.02 * width, below=None)
    assert excess(act, middle, radius, narrow)[1] > 0


@pytest.mark.theorem("affine-product", "holds")
@pytest.mark.theorem("affine-product", "attained")
@pytest.mark.theorem("affine-product", "falsifiable")
def test_products():
    torch.manual_seed(0)
    net = Gated(3, nn.Identity()).double()
    engine, _ = engine_of(net, torch.randn(1, 1, 3, dtype=torch.float64), 0.3, math.inf)
    node = next(each for each in engine.nodes if each.kind == "product")
    x, y = node.parents
    corners = []
    for one, other in itertools.product((-1.0, 1.0), repeat=2):
        left, right = x.centre + one * x.box, y.centre + other * y.box
        linear = x.centre * y.centre + x.centre * other * y.box + y.centre * one * x.box
        corners.append((left * right - linear).abs())
    worst = torch.stack(corners).amax(dim=0)
    assert (worst <= node.both * (1 + 1e-9) + 1e-15).all()
    assert (worst >= node.both * (1 - 1e-9) - 1e-15).all()
    assert (worst > 0.99 * node.both).all()  # so that 0.99 times the bound fails


def norm_engine(radius, *, epsilon=1e-5, seed=0, norm=2):
    torch.manual_seed(seed)
    net = nn.RMSNorm(6, eps=epsilon).double()
    with torch.no_grad():
        net.weight.copy_(torch.randn(6))
    return engine_of(net, torch.randn(1, 2, 6, dtype=torch.float64), radius, norm)


def remainders(engine, steps):
    """φ − 1 + t at each step, (steps, tokens), and its limits."""
    node = engine.nodes[-1]
    y0 = node.parents[0].centre
    power = y0.square().mean(dim=-1) + node.epsilon
    size = y0.shape[-1] * power
    t = (steps * y0).sum(dim=-1) / size
    w = steps.square().sum(dim=-1) / size
    value = (1 + 2 * t + w).rsqrt() - 1 + t
    return value, (node.middle - node.half)[:, 0], (node.middle + node.half)[:, 0]


@pytest.mark.theorem("affine-norm", "holds")
@pytest.mark.parametrize("radius", [1e-3, 0.1, 0.5])
def test_the_variance_stays_in_its_limits(radius):
    engine, _ = norm_engine(radius)
    steps = directions((2, 6), 2, 3000, 1) * radius
    value, low, high = remainders(engine, steps)
    assert (value >= low).all()
    assert (value <= high).all()


@pytest.mark.theorem("affine-norm", "attained")
@pytest.mark.theorem("affine-norm", "falsifiable")
def test_the_limits_of_the_variance_are_approached():
    engine, _ = norm_engine(1e-2)
    y0 = engine.nodes[-1].parents[0].centre
    other = torch.randn(6, dtype=torch.float64)
    across = other - (other @ y0[0]) / (y0[0] @ y0[0]) * y0[0]
    step = torch.zeros(1, 2, 6, dtype=torch.float64)
    step[0, 0] = across / across.norm() * 1e-2
    value, low, _ = remainders(engine, step)
    assert float(value[0, 0]) < 0.99 * float(low[0]) < 0
    assert float(value[0, 0]) >= float(low[0])


def exact_weights(scores):
    """Softmax of rational numbers as balls."""
    top = [flint.arb(s).exp() for s in scores]
    total = sum(top, flint.arb(0))
    return [each / total for each in top]


@pytest.mark.theorem("softmax-remainder", "holds")
@pytest.mark.parametrize("seed", range(12))
def test_the_softmax_remainder_holds_at_all_vertices(seed):
    """Scores in a box: every vertex, in exact arithmetic, against limits from float64."""
    flint.ctx.dps = 400
    torch.manual_seed(seed)
    n = 2 + seed % 4
    scores = torch.randn(n, dtype=torch.float64) * 10 ** (seed % 3)
    moves = torch.rand(n, dtype=torch.float64) * [1e-9, 1e-3, 0.3, 4.0][seed % 4]
    p = exact_weights([float(s) for s in scores])
    vertices = list(itertools.product((-1.0, 1.0), repeat=n))
    centred = []
    for signs in vertices:
        delta = [flint.arb(float(m)) * s for m, s in zip(moves, signs, strict=True)]
        mean = sum((a * b for a, b in zip(p, delta, strict=True)), flint.arb(0))
        centred.append([d - mean for d in delta])
    a = [max(float(abs(c[j]).upper()) for c in centred) * (1 + 1e-12) for j in range(n)]
    limits = torch.tensor(a, dtype=torch.float64)
    found = softmax_remainder(torch.softmax(scores, -1), limits, doubt=1e-13)
    for signs, c in zip(vertices, centred, strict=True):
        moved = exact_weights(
            [
                flint.arb(float(s)) + flint.arb(float(m)) * g
                for s, m, g in zip(scores, moves, signs, strict=True)
            ]
        )
        for j in range(n):
            rest = moved[j] - p[j] - p[j] * c[j]
            assert rest >= -flint.arb(float(found.low[j])), (signs, j)
            assert rest <= flint.arb(float(found.high[j])), (signs, j)
            assert abs(moved[j] - p[j]) <= flint.arb(float(found.change[j])), (signs, j)


@pytest.mark.theorem("softmax-remainder", "attained")
@pytest.mark.theorem("softmax-remainder", "falsifiable")
def test_a_key_of_small_weight_approaches_the_upper_limit():
    scores = torch.tensor([0.0, -20.0], dtype=torch.float64)
    p = torch.softmax(scores, -1)
    moved = torch.softmax(scores + torch.tensor([0.0, 0.5], dtype=torch.float64), -1)
    c = 0.5 * (1 - p[1])
    rest = float(moved[1] - p[1] - p[1] * c)
    found = softmax_remainder(p, torch.stack((0.5 * p[1], c)))
    assert rest <= float(found.high[1])
    assert rest > 0.99 * float(found.high[1])


@pytest.mark.parametrize("a", [0.0, 1e-12, 1e-6, 0.009999, 0.01, 1.0, 30.0, 500.0])
def test_the_exponential_beyond_its_tangent(a):
    flint.ctx.dps = 60
    exact = flint.arb(a).exp() - 1 - flint.arb(a)
    found = flint.arb(float(beyond_linear(torch.tensor(a, dtype=torch.float64))))
    assert found >= exact
    assert found <= exact * (1 + flint.arb(1e-5))


def joint(norm, seed):
    torch.manual_seed(seed)
    p = torch.softmax(torch.randn(1, 1, 5, dtype=torch.float64), -1)
    linear = 0.3 * torch.randn(1, 1, 5, 4, dtype=torch.float64)
    rest = 0.01 * torch.rand(1, 1, 5, dtype=torch.float64)
    inputs = InputSet(1.0, norm, torch.ones(1, 4, dtype=torch.float64))
    a = inputs.reach(linear) + rest
    return JointRows(p, linear, rest, a, inputs), p, linear, rest


@pytest.mark.theorem("softmax-joint", "holds")
@pytest.mark.parametrize("norm", NORMS)
def test_joint_squares_hold(norm):
    for seed in range(10):
        rows, _p, linear, rest = joint(norm, seed)
        steps = directions((4,), norm, 600, seed)
        noise = (2 * torch.rand(600, 5, dtype=torch.float64) - 1) * rest[0, 0]
        c = steps @ linear[0, 0].mT + noise
        squares = (rows.weights[0, 0] * c.square()).sum(dim=1)
        assert (squares <= rows.gap[0, 0, 0]).all()
        b = torch.randn(1, 1, 1, 5, dtype=torch.float64)
        low = torch.zeros(1, 1, 1, 5, dtype=torch.float64)
        top = rows.side(b, low, [each[None] for each in rows.data])
        used = (b[0, 0, 0].clamp(min=0) * rows.weights[0, 0] * c.square()).sum(dim=1)
        assert (used <= top[0, 0, 0]).all()


@pytest.mark.theorem("softmax-joint", "attained")
@pytest.mark.theorem("softmax-joint", "falsifiable")
@pytest.mark.parametrize("norm", [1, 2])
def test_joint_squares_are_attained(norm):
    rows, _, linear, _ = joint(norm, 0)
    rows.rest = torch.zeros_like(rows.rest)
    root = rows.weights[0, 0].sqrt()[:, None] * linear[0, 0]
    if norm == 2:
        step = torch.linalg.svd(root).Vh[0]
    else:
        step = torch.zeros(4, dtype=torch.float64)
        step[root.norm(dim=0).argmax()] = 1.0
    found = float(rows._square(rows.weights)[0, 0])
    assert float((root @ step).square().sum()) == pytest.approx(found, rel=1e-8)
    assert float((root @ step).square().sum()) > 0.99 * found


@pytest.mark.theorem("affine-attention", "holds")
@pytest.mark.theorem("affine-attention", "attained")
@pytest.mark.theorem("affine-attention", "falsifiable")
def test_attention_over_equal_values_does_not_move():
    """Only the values' own bias comes out, whatever the scores do; a moved value is seen."""
    torch.manual_seed(0)
    net = nn.MultiheadAttention(6, 2, batch_first=True).double().eval()
    with torch.no_grad():
        net.in_proj_weight[12:] = 0.0
    x = torch.randn(1, 4, 6, dtype=torch.float64)
    engine, _question = engine_of(net, x, 1.0, 2)
    node = next(each for each in engine.nodes if each.kind == "attention")
    low, high = engine.interval([(node, Rows(torch.randn(3, 4, 6, dtype=torch.float64)))])
    assert (high < 1e-9).all()
    assert (low > -1e-9).all()
    with torch.no_grad():
        net.in_proj_weight[12:] = 0.1 * torch.randn(6, 6)
    moved, _ = engine_of(net, x, 1.0, 2)
    low, high = moved.interval([(moved.nodes[node.index], Rows(torch.ones(1, 4, 6).double()))])
    assert float(high) > 1e-3


@pytest.mark.theorem("affine-attention", "falsifiable")
@pytest.mark.parametrize("norm", NORMS)
def test_scores_that_only_their_product_moves(norm):
    """Queries and keys are 0 at the centre: scores have no derivative, and still they move."""
    net = nn.MultiheadAttention(4, 1, bias=False, batch_first=True).double().eval()
    with torch.no_grad():
        net.in_proj_weight.zero_()
        net.in_proj_weight[0, 0] = net.in_proj_weight[1, 1] = 6.0  # queries
        net.in_proj_weight[4, 0] = net.in_proj_weight[5, 1] = 6.0  # keys
        net.in_proj_weight[10, 2] = 1.0  # values
        net.out_proj.weight.copy_(torch.eye(4))
    x = torch.tensor([[[0.0, 0.0, 1.0, 0.0], [0.0, 0.0, -1.0, 0.0]]], dtype=torch.float64)
    radius = 0.4
    engine, question = engine_of(net, x, radius, norm)
    unit = torch.tensor([[1.0, 1.0, 0.0, 0.0], [-1.0, -1.0, 0.0, 0.0]], dtype=torch.float64)
    size = {1: unit.abs().sum(), 2: unit.norm(), math.inf: unit.abs().max()}[norm]
    point = x[0] + radius * (1 - 1e-12) * unit / size
    check_every_bound(engine, question, point[None])
    output = record(question.at(point[None]), 0, CPU)[-1].centre
    assert float(output[0, 2] - engine.nodes[-1].centre[0, 2]) > 0.1
    node = next(each for each in engine.nodes if each.kind == "attention")
    scores, _ = node.found
    slope = node.scale * 36 * 2 * (radius / float(size)) ** 2
    assert float(scores.bilinear[0, 0, 0]) >= slope  # what the product really does


def test_the_curvature_of_soft_caps():
    """0.385 is half of the largest second derivative of tanh: enough, and not a per cent more."""
    s = torch.linspace(-3, 3, 601, dtype=torch.float64)
    d = torch.tensor([-1.0, -1e-2, 1e-2, 1.0], dtype=torch.float64)[:, None]
    rest = torch.tanh(s + d) - torch.tanh(s) - (1 - torch.tanh(s).square()) * d
    assert (rest.abs() <= CAPPED * d.square()).all()
    assert float((rest.abs() / d.square()).max()) > 0.99 * CAPPED


def test_rounding_of_an_executed_operation_widens_the_bound():
    torch.manual_seed(0)
    net = nn.Linear(50, 4).double()
    x = torch.randn(1, 1, 50, dtype=torch.float64)
    rows = Rows(torch.eye(4, dtype=torch.float64)[:, None])
    exact, single = (engine_of(net, x, 1e-9, 2, eps=eps)[0] for eps in (0.0, 2.0**-23))
    wider = (
        single.interval([(single.nodes[-1], rows)])[1]
        - exact.interval([(exact.nodes[-1], rows)])[1]
    )
    sizes = x[0, 0].norm() * net.weight.detach().norm(dim=1)
    assert (wider >= 50 * 2.0**-24 * sizes).all()  # what sums of fifty products may err by


@pytest.mark.parametrize("norm", [1, 2])
def test_values_that_move_apart_share_the_radius(norm):
    """All weights change as far as they can while one key's value takes the whole radius."""
    torch.manual_seed(0)
    net = nn.MultiheadAttention(4, 2, batch_first=True).double().eval()
    engine, _ = engine_of(net, torch.randn(1, 3, 4, dtype=torch.float64), 0.2, norm)
    node = next(each for each in engine.nodes if each.kind == "attention")
    assert node.change.apart
    a = torch.zeros(2, 2, 3, 2, dtype=torch.float64)  # rows, heads, queries, width
    a[:, 0, 0] = torch.randn(2, 2, dtype=torch.float64)  # one query alone uses all of it
    bound = node.change.bound(a, Rows(a), node._pick)
    weight = node.values.weight.reshape(2, 2, 4)[0]  # width, inputs
    moved = a[:, 0, 0] @ weight
    most = 0.2 * (moved.abs().amax(dim=1) if norm == 1 else moved.norm(dim=1))
    assert (node.change.change[0, 0].max() * most <= bound).all()
