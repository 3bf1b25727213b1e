"""Ellipsoids of smooth networks: they hold at every node, are tight somewhere, can be refuted."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
import taut.networks as tt  # noqa: E402
from taut import At  # noqa: E402
from taut.networks.ellipsoids.activation_ellipsoid import activation_error  # noqa: E402
from taut.networks.ellipsoids.attention_ellipsoid import MovedAttention  # noqa: E402
from taut.networks.ellipsoids.attention_error import (  # noqa: E402
    attention_error,
    order_of,
    polar_of,
)
from taut.networks.ellipsoids.ellipsoid import box, factor, series, summed  # noqa: E402
from taut.networks.ellipsoids.forward import Forward, is_smooth  # noqa: E402
from taut.networks.ellipsoids.norm_ellipsoid import (  # noqa: E402
    apart,
    bilinear_forms,
    cubic_forms,
    norm_error,
    squares_of,
)
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


def two_sets(many, sizes):
    """Points of the unit balls of a linear change and of everything else, side by side."""
    return torch.cat([in_ball(many, size) for size in sizes if size], dim=1)


def matrix(steps):
    """The ellipsoid of steps (size of z, ...)."""
    flat = steps.flatten(1)
    return flat.mT @ flat


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
    matrices = matrix(x.mT), matrix(y.mT)
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
    squares = x @ x.mT
    z = torch.ones(1, 1, dtype=torch.float64)
    whole = summed(squares, 4 * squares)
    assert used(3 * z @ x.mT, whole) == pytest.approx(1, abs=1e-9)
    assert used((z @ x.mT) ** 2, squares * squares) == pytest.approx(1, abs=1e-9)
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
    sizes = 1 + seed % 5, seed % 4
    steps = random(sum(sizes), tokens, width) * [0.1, 0.03, 0.3][seed % 3]
    power = y.square().mean(dim=-1) + epsilon
    for _ in range(20):
        moves = matrix(steps[: sizes[0]]), matrix(steps[sizes[0] :])
        try:
            error, least = norm_error(y, gain, power, epsilon, *moves)
        except UnboundedError:
            steps = steps / 2
            continue
        break
    assert 0 < least <= 1
    z = two_sets(3000, sizes)
    assert used(norm_errors(y, gain, epsilon, steps, z), error) <= 1
    # and no mean square gets smaller
    moved = y + torch.einsum("pz,ztd->ptd", z, steps)
    ratio = (moved.square().mean(dim=-1) + epsilon) / power
    assert float(ratio.sqrt().min()) >= least


def test_squares_of_tokens_that_move_by_themselves_are_not_added_up():
    torch.manual_seed(0)
    steps = torch.zeros(12, 3, 4, dtype=torch.float64)
    for token in range(3):
        steps[4 * token : 4 * token + 4, token] = random(4, 4)
    total = 1 + torch.rand(3).double()
    found, top = squares_of(matrix(steps), total, 4)
    moved = torch.einsum("pz,ztd->ptd", in_ball(3000, 12), steps)
    assert used(moved.square().sum(dim=-1) / total, found) <= 1
    assert torch.allclose(found, torch.diag(top.square()), rtol=1e-6)
    mixed = random(5, 3, 4)
    found, _ = squares_of(matrix(mixed), total, 4)
    moved = torch.einsum("pz,ztd->ptd", in_ball(3000, 5), mixed)
    assert used(moved.square().sum(dim=-1) / total, found) <= 1


@pytest.mark.parametrize("along", [-0.8, -0.5, 0.5, 0.8])
def test_norm_layers_on_moves_along_a_token(along):
    y = torch.tensor([[1.0, 2.0, -2.0]]).double()
    across = torch.tensor([[2.0, -1.0, 0.0]]).double() * 0.01
    steps, gain = (along * y + across)[None], torch.ones(3, dtype=torch.float64)
    none = torch.zeros(3, 3, dtype=torch.float64)
    error, _ = norm_error(y, gain, y.square().mean(dim=-1), 0.0, matrix(steps), none)
    ends = torch.tensor([[1.0], [-1.0]]).double()
    assert 0.5 < used(norm_errors(y, gain, 0.0, steps, ends), error) <= 1


EITHER = pytest.mark.parametrize("as_linear", [True, False], ids=["linear", "beyond"])


def either(moves, none, as_linear):
    """The linear change and all else, one of which is nothing."""
    return (moves, none) if as_linear else (none, moves)


def near_one(measured, error):
    """One direction and a small radius: nothing but the quadratic form is left."""
    assert used(measured, error) == pytest.approx(1, abs=2e-3)
    assert used(measured, 0.98 * error) > 1


@pytest.mark.theorem("ellipsoid-norm", "attained")
@pytest.mark.theorem("ellipsoid-norm", "falsifiable")
@EITHER
def test_norm_layers_are_tight_along_one_direction(as_linear):
    torch.manual_seed(0)
    y, gain, steps = random(2, 4), random(4), 1e-4 * random(1, 2, 4)
    power, none = y.square().mean(dim=-1) + 1e-5, torch.zeros(8, 8, dtype=torch.float64)
    error, _ = norm_error(y, gain, power, 1e-5, *either(matrix(steps), none, as_linear))
    z = torch.ones(1, 1, dtype=torch.float64)
    near_one(norm_errors(y, gain, 1e-5, steps, z), error)


def symmetric(forms):
    """Tensors (entries, size, ..., size) with all orders of their axes averaged."""
    axes = list(itertools.permutations(range(1, forms.dim())))
    return sum(forms.permute(0, *order) for order in axes) / len(axes)


def test_forms_of_norm_layers_have_the_inner_products_of_their_tensors():
    torch.manual_seed(0)
    y, total, moves = random(2, 3), 1 + torch.rand(2).double(), (random(2, 2, 3), random(4, 2, 3))
    (b, along_b), (c, along_c) = (
        (each - along[..., None] * y, along)
        for each in moves
        for along in [(each * y).sum(dim=-1) / y.square().sum(dim=-1)]
    )
    tensor = torch.einsum("ti,ztk,xtk,t->tizx", -y, b, c, 1 / total)
    tensor -= torch.einsum("zti,xt->tizx", b, along_c) + torch.einsum("xti,zt->tizx", c, along_b)
    tensor = tensor.flatten(0, 1).flatten(1)
    found = bilinear_forms(y, total, *(apart(y, matrix(each)) for each in moves))
    assert torch.allclose(found, tensor @ tensor.mT, atol=1e-10)
    s = moves[1]
    tensor = torch.einsum("zti,xtk,wtk,t->tizxw", s, s, s, 0.5 / total).flatten(0, 1)
    tensor = symmetric(tensor).flatten(1)
    assert torch.allclose(cubic_forms(matrix(s), total, 3), tensor @ tensor.mT, atol=1e-10)


@pytest.mark.theorem("ellipsoid-activation", "holds")
@pytest.mark.parametrize("make", [nn.GELU, lambda: nn.GELU("tanh"), nn.ReLU, nn.SiLU, nn.Tanh])
@pytest.mark.parametrize("size", [1e-3, 0.1, 0.8, 4.0])
def test_activations_stay_inside(make, size):
    torch.manual_seed(0)
    act = activation_of(make())
    middle, steps = 2 * random(6), random(4, 6) * size / 4
    slope, error = activation_error(act, middle, matrix(steps[:2]), matrix(steps[2:]))
    t = two_sets(4000, (2, 2)) @ steps
    rest = act.function(middle + t) - act.function(middle) - slope * t
    assert used(rest, error) <= 1


@pytest.mark.theorem("ellipsoid-activation", "attained")
@pytest.mark.theorem("ellipsoid-activation", "falsifiable")
@EITHER
def test_gelu_is_tight_along_one_direction(as_linear):
    act = activation_of(nn.GELU())
    middle, steps = random(5) / 2, 1e-4 * random(5, 1)
    none = torch.zeros(5, 5, dtype=torch.float64)
    moves = either(steps @ steps.mT, none, as_linear)
    slope, error = activation_error(act, middle, *moves)
    t = steps.mT
    near_one(act.function(middle + t) - act.function(middle) - slope * t, error)


def random_attention(seed, sizes, scale=1.0, queries_move=True):
    """How linear changes and all else move, the outputs there, and the linear change of both."""
    torch.manual_seed(seed)
    heads, queries, keys, width = 1 + seed % 2, 1 + seed % 3, 2 + seed % 3, 2
    places = tuple(random(heads, many, width) for many in (queries, keys, keys))
    steps = [scale * random(heads, many, width, sum(sizes)) for many in (queries, keys, keys)]
    steps[0] = steps[0] * queries_move
    seen = torch.rand(heads, queries, keys) < 0.8
    seen[..., 0] = True
    q, k, _ = places

    def outputs(z):
        q, k, v = (x + step @ z for x, step in zip(places, steps, strict=True))
        scores = torch.where(seen, 0.7 * q @ k.mT, -torch.inf)
        return (torch.softmax(scores, dim=-1) @ v).transpose(0, 1).flatten()

    p = torch.softmax(torch.where(seen, 0.7 * q @ k.mT, -torch.inf), dim=-1)
    parts = zip(*(each.split(sizes, dim=-1) for each in steps), strict=True)
    linear, beyond = (MovedAttention(p, places, each, 0.7, seen) for each in parts)
    return linear, beyond, outputs, linear.linear(*steps)


def attention_errors(outputs, linear, z):
    """What attention does beyond its linear change, (points, entries)."""
    zero = torch.zeros(z.shape[1], dtype=torch.float64)
    here = outputs(zero)
    return torch.stack([
        outputs(each) - here - (linear @ each).transpose(0, 1).flatten() for each in z
    ])  # fmt: skip


def error_of(linear, beyond):
    return attention_error(linear, beyond, torch.zeros(linear.many, dtype=torch.float64))


@pytest.mark.theorem("ellipsoid-attention", "holds")
@pytest.mark.parametrize("seed", range(12))
def test_attention_stays_inside(seed):
    sizes = 1 + seed % 4, (seed + 1) % 3
    linear, beyond, outputs, change = random_attention(seed, sizes, [0.02, 0.1, 0.3][seed % 3])
    error, far = error_of(linear, beyond)
    assert far > 0
    assert used(attention_errors(outputs, change, two_sets(800, sizes)), error) <= 1


@pytest.mark.theorem("ellipsoid-attention", "attained")
@pytest.mark.theorem("ellipsoid-attention", "falsifiable")
@EITHER
def test_attention_is_tight_along_one_direction(as_linear):
    # the product of moved queries and keys is a term of its own
    sizes = (1, 0) if as_linear else (0, 1)
    linear, beyond, outputs, change = random_attention(1, sizes, 1e-4, queries_move=False)
    one = torch.ones(1, 1, dtype=torch.float64)
    near_one(attention_errors(outputs, change, one), error_of(linear, beyond)[0])


@pytest.mark.parametrize("order", [2, 3, 4])
def test_forms_of_one_order_have_the_inner_products_of_their_tensors(order):
    """Written out with all indices, and nothing but rounding beside it."""
    linear, _, _, _ = random_attention(5, (3, 0), 0.5)
    names = "zyxw"[:order]
    u, letters = linear.u, [f"hij{name}" for name in names]
    w = linear.on_v[:, None] - linear.x[:, :, None]  # (heads, queries, keys, width, size)
    first = torch.einsum(
        f"hijd,{','.join(letters)}->hid{names}", linear.spread_of, *[u] * order
    ) / math.factorial(order)
    second = torch.einsum(
        f"hij,{','.join(letters[1:])},hijd{names[0]}->hid{names}",
        linear.p, *[u] * (order - 1), w,
    ) / math.factorial(order - 1)  # fmt: skip
    tensor = symmetric((first + second).flatten(0, 2)).flatten(1)
    assert torch.allclose(order_of(linear, order), tensor @ tensor.mT, atol=1e-10)


def test_forms_of_two_moves_have_the_inner_products_of_their_tensors():
    linear, beyond, _, _ = random_attention(5, (3, 2), 0.5)
    values = [each.on_v[:, None] - each.x[:, :, None] for each in (linear, beyond)]
    tensor = torch.einsum("hijd,hijz,hijy->hidzy", linear.spread_of, linear.u, beyond.u)
    tensor += torch.einsum("hij,hijz,hijdy->hidzy", linear.p, linear.u, values[1])
    tensor += torch.einsum("hij,hijy,hijdz->hidzy", linear.p, beyond.u, values[0])
    tensor = tensor.flatten(0, 2).flatten(1)
    assert torch.allclose(polar_of(linear, beyond), tensor @ tensor.mT, atol=1e-10)


def used_at_the_ends(places, *moves):
    """How much of its ellipsoid one step of linear change and one of all else use, both ways."""

    def outputs(z):
        q, k, v = (
            place + one[..., 0] * z[0] + other[..., 0] * z[1]
            for place, one, other in zip(places, *moves, strict=True)
        )
        return (torch.softmax(0.7 * q @ k.mT, dim=-1) @ v).flatten()

    p = torch.softmax(0.7 * places[0] @ places[1].mT, dim=-1)
    seen = torch.ones_like(p, dtype=torch.bool)
    both = [MovedAttention(p, places, each, 0.7, seen) for each in moves]
    change = torch.cat([each.linear(*each.steps) for each in both], dim=-1)
    signs = torch.tensor(list(itertools.product([-1, 1], repeat=2))).double()
    return used(attention_errors(outputs, change, signs), error_of(*both)[0])


@pytest.mark.parametrize(
    ("at", "linear", "beyond"),
    [(1, "k", "v"), (1, "v", "k"), (0, "qkv", ""), (0, "", "qkv"), (0, "v", "qk")],
)
def test_nothing_but_one_term_of_attention_is_left(at, linear, beyond):
    """If all values are the same, only those that move count; without a term it would not hold."""
    torch.manual_seed(0)
    places = at * random(1, 1, 2), at * random(1, 4, 2), torch.ones(1, 4, 2, dtype=torch.float64)
    step = [random(*place.shape, 1) for place in places]
    step[0], step[1] = [2 * each for each in step[:2]]
    moves = [
        tuple(each * (name in names) for name, each in zip("qkv", step, strict=True))
        for names in (linear, beyond)
    ]
    assert 0.25 < used_at_the_ends(places, *moves) <= 1


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
