"""Ellipsoids of smooth networks: they hold at every node, are tight somewhere, can be refuted."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")
import taut.networks as tt  # noqa: E402
from taut import At  # noqa: E402
from taut.networks.ellipsoids.activation_ellipsoid import activation_error  # noqa: E402
from taut.networks.ellipsoids.attention_ellipsoid import MovedAttention  # noqa: E402
from taut.networks.ellipsoids.ellipsoid import box, factor, series, summed  # noqa: E402
from taut.networks.ellipsoids.forward import Forward, is_smooth  # noqa: E402
from taut.networks.ellipsoids.norm_ellipsoid import norm_error  # noqa: E402
from taut.networks.operations.activation_slopes import activation_of  # noqa: E402
from taut.networks.propagation.input_set import InputSet  # noqa: E402
from taut.networks.propagation.node import UnboundedError  # noqa: E402
from taut.networks.propagation.record import record  # noqa: E402
from taut.networks.question import ask  # noqa: E402
from tests.helpers.propagation_attack import CPU, directions, worst_steps  # noqa: E402
from tests.helpers.random_networks import random_network  # noqa: E402

nn = torch.nn


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def in_ball(count, size):
    """Points of the unit ball, most of them on its sphere."""
    found = random(count, size)
    found[: count // 4] = torch.eye(size, dtype=torch.float64)[torch.arange(count // 4) % size]
    return found / found.norm(dim=1, keepdim=True) * torch.rand(count, 1).double() ** 0.1


def support(matrix, rows):
    """Largest value of each row on an ellipsoid."""
    return torch.einsum("ri,ij,rj->r", rows, matrix, rows).sqrt()


def used(errors, matrix, many=200):
    """How much of an ellipsoid errors (points, entries) use, along random rows and entries."""
    rows = torch.cat((random(many, errors.shape[1]), torch.eye(errors.shape[1]).double()))
    # the errors themselves are differences that were rounded
    values = ((errors @ rows.mT).abs() - 1e-14 * rows.norm(dim=1)).clamp(min=0.0)
    return float((values / support(matrix, rows)).max())


@pytest.mark.theorem("ellipsoid-algebra", "holds")
@pytest.mark.parametrize("seed", range(6))
def test_sums_products_and_series_stay_inside(seed):
    torch.manual_seed(seed)
    size = 1 + seed
    x, y = random(5, size) * 0.3, random(5, 3)
    one, other = in_ball(2000, size), in_ball(2000, 3)
    a, b = one @ x.mT, other @ y.mT
    matrices = x @ x.mT, y @ y.mT
    assert used(a + b, summed(*matrices)) <= 1
    assert used(a * b, matrices[0] * matrices[1]) <= 1
    radius = torch.rand(5).double()
    corners = radius * (2 * torch.rand(2000, 5).double() - 1).sign()
    assert used(corners, box(radius)) <= 1
    orders = range(2, 12)
    ones = torch.ones(5, dtype=torch.float64)
    far = x.norm(dim=1)
    rests = [far ** (k + 1) / math.factorial(k + 1) * far.exp() for k in orders][1:]
    parts = series(matrices[0], [ones / math.factorial(k) for k in orders], rests, 2)
    assert used(torch.expm1(a) - a, summed(*parts)) <= 1
    assert float((factor(matrices[0]) @ factor(matrices[0]).mT - matrices[0]).diagonal().min()) >= 0


@pytest.mark.theorem("ellipsoid-algebra", "attained")
@pytest.mark.theorem("ellipsoid-algebra", "falsifiable")
def test_proportional_ellipsoids_add_up_and_squares_are_attained():
    x = random(4, 1)
    matrix = x @ x.mT
    z = torch.ones(1, 1, dtype=torch.float64)
    whole = summed(matrix, 4 * matrix)
    assert used(3 * z @ x.mT, whole) == pytest.approx(1, abs=1e-9)
    assert used((z @ x.mT) ** 2, matrix * matrix) == pytest.approx(1, abs=1e-9)
    assert used(3 * z @ x.mT, 0.98 * whole) > 1


def norm_errors(y, gain, epsilon, steps, z):
    """What a norm layer does beyond its derivative at y + steps·z, (points, entries)."""

    def layer(x):
        return gain * x / (x.square().mean(dim=-1, keepdim=True) + epsilon).sqrt()

    moved = torch.einsum("pz,ztd->ptd", z, steps)
    power = y.square().mean(dim=-1, keepdim=True) + epsilon
    along = (moved * y).mean(dim=-1, keepdim=True) / power
    linear = gain * (moved - along * y) / power.sqrt()
    return (layer(y + moved) - layer(y) - linear).flatten(1)


@pytest.mark.theorem("ellipsoid-norm", "holds")
@pytest.mark.parametrize("seed", range(12))
def test_norm_layers_stay_inside(seed):
    torch.manual_seed(seed)
    tokens, width = 1 + seed % 3, 2 + seed % 4
    y, gain, epsilon = random(tokens, width), random(width), [0.0, 1e-5, 1.0][seed % 3]
    steps = random(1 + seed % 5, tokens, width) * [0.1, 0.03, 0.3][seed % 3]
    power = y.square().mean(dim=-1) + epsilon
    flat = steps.flatten(1)
    for _ in range(20):
        try:
            error, far = norm_error(y, gain, power, flat.mT @ flat)
        except UnboundedError:
            flat, steps = flat / 2, steps / 2
            continue
        break
    assert 0 < far < 1
    z = in_ball(3000, len(steps))
    assert used(norm_errors(y, gain, epsilon, steps, z), error) <= 1


def near_one(measured, error):
    """One direction and a small radius: nothing but the quadratic form is left."""
    assert used(measured, error) == pytest.approx(1, abs=2e-3)
    assert used(measured, 0.98 * error) > 1


@pytest.mark.theorem("ellipsoid-norm", "attained")
@pytest.mark.theorem("ellipsoid-norm", "falsifiable")
def test_norm_layers_are_tight_along_one_direction():
    torch.manual_seed(0)
    y, gain, steps = random(2, 4), random(4), 1e-4 * random(1, 2, 4)
    flat = steps.flatten(1)
    error, _ = norm_error(y, gain, y.square().mean(dim=-1) + 1e-5, flat.mT @ flat)
    z = torch.ones(1, 1, dtype=torch.float64)
    near_one(norm_errors(y, gain, 1e-5, steps, z), error)


@pytest.mark.theorem("ellipsoid-activation", "holds")
@pytest.mark.parametrize("make", [nn.GELU, lambda: nn.GELU("tanh"), nn.ReLU, nn.SiLU, nn.Tanh])
@pytest.mark.parametrize("size", [1e-3, 0.1, 0.8, 4.0])
def test_activations_stay_inside(make, size):
    torch.manual_seed(0)
    act = activation_of(make())
    middle, steps = 2 * random(6), random(6, 4) * size / 2
    slope, error = activation_error(act, middle, steps @ steps.mT)
    t = in_ball(4000, 4) @ steps.mT
    rest = act.function(middle + t) - act.function(middle) - slope * t
    assert used(rest, error) <= 1


@pytest.mark.theorem("ellipsoid-activation", "attained")
@pytest.mark.theorem("ellipsoid-activation", "falsifiable")
def test_gelu_is_tight_along_one_direction():
    act = activation_of(nn.GELU())
    middle, steps = random(5) / 2, 1e-4 * random(5, 1)
    slope, error = activation_error(act, middle, steps @ steps.mT)
    t = steps.mT
    near_one(act.function(middle + t) - act.function(middle) - slope * t, error)


def random_attention(seed, size, scale=1.0, queries_move=True):
    torch.manual_seed(seed)
    heads, queries, keys, width = 1 + seed % 2, 1 + seed % 3, 2 + seed % 3, 2
    places = tuple(random(heads, many, width) for many in (queries, keys, keys))
    steps = [scale * random(heads, many, width, size) for many in (queries, keys, keys)]
    steps[0] = steps[0] * queries_move
    seen = torch.rand(heads, queries, keys) < 0.8
    seen[..., 0] = True
    q, k, _ = places

    def outputs(z):
        q, k, v = (x + step @ z for x, step in zip(places, steps, strict=True))
        scores = torch.where(seen, 0.7 * q @ k.mT, -torch.inf)
        return (torch.softmax(scores, dim=-1) @ v).transpose(0, 1).flatten()

    p = torch.softmax(torch.where(seen, 0.7 * q @ k.mT, -torch.inf), dim=-1)
    moved = MovedAttention(p, places, steps, 0.7, seen, torch.zeros(queries, dtype=torch.float64))
    return moved, outputs


def attention_errors(moved, outputs, z):
    """What attention does beyond its linear change, (points, entries)."""
    linear = moved.linear(moved.on_q, moved.on_k, moved.on_v)
    zero = torch.zeros(z.shape[1], dtype=torch.float64)
    here = outputs(zero)
    return torch.stack([
        outputs(each) - here - (linear @ each).transpose(0, 1).flatten() for each in z
    ])  # fmt: skip


@pytest.mark.theorem("ellipsoid-attention", "holds")
@pytest.mark.parametrize("seed", range(12))
def test_attention_stays_inside(seed):
    moved, outputs = random_attention(seed, 1 + seed % 4, [0.02, 0.1, 0.3][seed % 3])
    error, far = moved.error()
    assert far > 0
    assert used(attention_errors(moved, outputs, in_ball(800, 1 + seed % 4)), error) <= 1


@pytest.mark.theorem("ellipsoid-attention", "attained")
@pytest.mark.theorem("ellipsoid-attention", "falsifiable")
def test_attention_is_tight_along_one_direction():
    # the product of moved queries and keys is a term of its own
    moved, outputs = random_attention(1, 1, 1e-4, queries_move=False)
    one = torch.ones(1, 1, dtype=torch.float64)
    near_one(attention_errors(moved, outputs, one), moved.error()[0])


def forward_of(module, x, radius, norm, eps=0.0):
    question, _ = ask(module, At(x), None, None, None, "l2", 0)
    tape = record(question, 0, CPU)
    return Forward(tape, InputSet(radius, norm, torch.ones_like(tape[0].centre)), eps), question


def check_every_node(forward, question, points):
    """Random rows and single entries of every node, and the sizes of its tokens."""
    for point in points:
        tape = record(question.at(point[None]), 0, CPU)
        for node in forward.nodes[1:]:
            index = node.needed.nonzero()[:, 0]
            moved = torch.zeros_like(node.centre)
            moved[index] = (tape[node.index].centre - node.centre)[index]
            entries = node.centre.numel()
            rows = torch.cat((random(3, entries), torch.eye(entries).double()))
            rows.unflatten(1, node.centre.shape)[:, ~node.needed] = 0.0
            lengths = rows.unflatten(1, node.centre.shape).norm(dim=-1)
            far = (lengths * forward.rounded[node.index]).sum(dim=1)
            for group, steps in forward.steps[node.index].items():
                each = rows @ steps.flatten(1).mT
                far = far + (forward.inputs.reach(each) if group == 0 else each.norm(dim=1))
            allowed = 1e-12 * (1 + node.centre.abs().max())
            assert ((rows @ moved.flatten()).abs() <= far * (1 + 1e-9) + allowed).all(), node.path
            assert (moved.norm(dim=-1) <= node.sizes + allowed).all(), node.path


@pytest.mark.parametrize(
    "seed", [*range(12), *(pytest.param(n, marks=pytest.mark.slow) for n in range(12, 200))]
)
def test_random_networks_stay_inside_at_every_node(seed):
    net, x = random_network(seed)
    norm = (1, 2, math.inf)[seed % 3]
    radius = 0.2
    forward = None
    for _ in range(12):
        try:
            forward, question = forward_of(net, x, radius, norm)
            break
        except UnboundedError:
            radius /= 4
    if forward is None:
        pytest.skip("a soft cap, a module without a rule, or numbers that are too large")
    steps = directions(tuple(x.shape[1:]), norm, 12, seed) * radius * (1 - 1e-12)
    check_every_node(forward, question, x[0] + steps)


class Deep(nn.Module):
    """Several layers with norms first and GELU, and a class token of their own."""

    def __init__(self, layers=2, width=8):
        super().__init__()
        layer = nn.TransformerEncoderLayer(
            width, 2, 12, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(
            layer, layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.encoder(x)[:, 0])


@tt.register(Deep)
def _deep(run, module, x):
    return run(module.head, run.first(run(module.encoder, x, "encoder")), "head")


def deep_network(seed=0, layers=2):
    torch.manual_seed(seed)
    net = Deep(layers).double().eval()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(1.5)
            weight.add_(0.05 * torch.randn_like(weight))
    return net, random(1, 4, 8)


@pytest.mark.parametrize("norm", [1, 2])
def test_deep_networks_are_attacked_at_every_node(norm):
    net, x = deep_network()
    forward, question = forward_of(net, x, 0.02, norm)
    assert is_smooth(forward.nodes)
    goals = torch.eye(3, dtype=torch.float64)
    worst = worst_steps(net, x[0], norm, 0.02, goals)
    check_every_node(forward, question, x[0] + worst)
    with torch.no_grad():
        moved = (net(x + worst) - net(x)).abs()
    far = forward.radius(goals[:, None])
    assert (moved <= far).all()
    assert float((moved.amax(dim=0) / far).min()) > 0.5  # and says something


def test_certified_radius_is_larger_with_ellipsoids_and_holds():
    net, x = deep_network(layers=3)
    found = tt.certified_radius(net, x)
    rows = tt.certified_radius(net, x, norm=math.inf)
    assert found.radius[0] > rows.radius[0] > 0
    assert (found.attack() > 0).all()
    assert found.radius[0] <= found.attack_radius()[0]


def test_rounding_of_float32_is_part_of_it():
    net, x = deep_network()
    exact, _ = forward_of(net, x, 1e-3, 2)
    executed, _ = forward_of(net, x, 1e-3, 2, eps=2.0**-24)
    rows = torch.eye(3, dtype=torch.float64)[:, None]
    assert (executed.radius(rows) > exact.radius(rows)).all()
    with torch.no_grad():
        moved = (net.float()(x.float()) - net.double()(x)).abs()
    assert (moved < executed.radius(rows)).all()
    assert executed.radius(rows).max() < 100 * exact.radius(rows).max()
