"""The parts that certificates are made of: slopes, norm layers, MLPs, spectral norms, the cache."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402
from taut.networks.operations.activation_slopes import activation_of  # noqa: E402
from taut.networks.weight_norms import spectral, spectral_product  # noqa: E402

ACTIVATIONS = [
    nn.ReLU(), nn.ReLU6(), nn.Tanh(), nn.Hardtanh(), nn.Softsign(), nn.Softshrink(),
    nn.Tanhshrink(), nn.Softplus(), nn.Softplus(beta=3.0), nn.LogSigmoid(), nn.CELU(0.5),
    nn.Sigmoid(), nn.Hardsigmoid(), nn.Hardswish(), nn.SELU(), nn.SiLU(), nn.Mish(), nn.GELU(),
    nn.GELU("tanh"), nn.LeakyReLU(0.1), nn.LeakyReLU(-1.5), nn.ELU(), nn.ELU(2.5), nn.ELU(-0.5),
    nn.RReLU().eval(), nn.PReLU(init=0.3), nn.PReLU(init=-2.0),
]  # fmt: skip


def slopes(activation):
    """Derivative on a fine grid, by autodiff in float64."""
    grid = torch.linspace(-12, 12, 480_001, dtype=torch.float64)
    near = torch.linspace(-1e-3, 1e-3, 2001, dtype=torch.float64)
    x = torch.cat((grid, near)).requires_grad_(True)
    (found,) = torch.autograd.grad(activation.function(x).sum(), x)
    return found


@pytest.mark.theorem("activation-slope", "holds")
@pytest.mark.parametrize("module", ACTIVATIONS, ids=repr)
def test_slopes_are_never_exceeded(module):
    activation = activation_of(module)
    found = slopes(activation)
    assert activation.low <= float(found.min()) + 1e-15
    assert float(found.max()) <= activation.high + 1e-15


@pytest.mark.theorem("activation-slope", "attained")
@pytest.mark.theorem("activation-slope", "falsifiable")
@pytest.mark.parametrize("module", ACTIVATIONS, ids=repr)
def test_slopes_are_reached(module):
    activation = activation_of(module)
    found = float(slopes(activation).abs().max())
    assert found > 0.99 * activation.constant


def test_digits_of_the_smooth_activations():
    """Against arbitrary precision: the stored digits enclose the true extremes, tightly."""
    flint = pytest.importorskip("flint")
    arb, flint.ctx.prec = flint.arb, 120
    root2 = arb(2).sqrt()
    # GELU′ = Φ(x) + xφ(x) is extreme where φ(x)(2 − x²) = 0
    high = (1 + (root2 / root2).erf()) / 2 + root2 * (-arb(1)).exp() / (2 * arb.pi()).sqrt()
    stored = activation_of(nn.GELU()).high
    assert arb(stored) >= high.mid() - 1e-15
    assert stored - float(high.mid()) < 1e-15

    def refined(slope, lo, hi):
        """Largest value on [lo, hi], by thirds; slopes are unimodal there."""
        lo, hi = arb(lo), arb(hi)
        for _ in range(120):
            a, b = lo + (hi - lo) / 3, hi - (hi - lo) / 3
            if slope(a) < slope(b):
                lo = a.mid()
            else:
                hi = b.mid()
        return slope((lo + hi) / 2)

    def silu(x):
        s = 1 / (1 + (-x).exp())
        return s + x * s * (1 - s)

    def gelu_tanh(x):
        c = (2 / arb.pi()).sqrt()
        u = c * (x + arb("0.044715") * x**3)
        return (1 + u.tanh()) / 2 + x / 2 * (1 - u.tanh() ** 2) * c * (
            1 + 3 * arb("0.044715") * x**2
        )

    def mish(x):
        s = (1 + x.exp()).log().tanh()
        return s + x * (1 - s**2) / (1 + (-x).exp())

    for slope, module, at in (
        (silu, nn.SiLU(), 2.4),
        (gelu_tanh, nn.GELU("tanh"), 1.4),
        (mish, nn.Mish(), 1.5),
    ):
        top = float(refined(slope, at - 0.5, at + 0.5).mid())
        stored = activation_of(module).high
        assert 0 <= stored - top < 4e-16


def test_jumps_and_squares_have_no_slopes():
    for module in (nn.Hardshrink(), nn.Threshold(0.1, 20.0), nn.Softmax2d()):
        assert activation_of(module) is None
    assert activation_of(torch.square) is None
    with pytest.raises(tt.MissingRuleError, match="Hardshrink"):
        tt.certify(nn.Sequential(nn.Linear(2, 2), nn.Hardshrink()), torch.ones(1, 2))


@pytest.mark.theorem("spectral", "holds")
@pytest.mark.theorem("spectral", "attained")
@pytest.mark.theorem("spectral", "falsifiable")
def test_spectral_norms_are_upper_bounds_and_tight():
    mp = pytest.importorskip("mpmath").mp
    torch.manual_seed(0)
    for shape in ((3, 3), (1, 7), (20, 5), (5, 20), (16, 16)):
        for scale in (1e-20, 1.0, 1e20):
            weight = scale * torch.randn(shape, dtype=torch.float64)
            weight = weight + 100 * scale * torch.ones(shape, dtype=torch.float64)
            found = spectral(weight)
            with mp.workdps(40):
                exact = float(max(mp.svd_r(mp.matrix(weight.tolist()), compute_uv=False)))
            assert exact <= found <= exact * (1 + 1e-11)
            assert 0.99 * found < exact
    assert spectral(torch.zeros(3, 2)) == 0.0


def test_spectral_norms_of_products_and_stacks():
    torch.manual_seed(0)
    a, b = torch.randn(6, 4, dtype=torch.float64), torch.randn(4, 5, dtype=torch.float64)
    exact = float(torch.linalg.matrix_norm(a @ b, 2))
    assert exact <= spectral_product(a, b) <= exact * (1 + 1e-11)
    both = torch.cat((2 * a, torch.randn(3, 4).double()))
    assert spectral(a, both[6:], scales=(2.0, 1.0)) == pytest.approx(
        float(torch.linalg.matrix_norm(both, 2)), rel=1e-11
    )


def test_the_cache_follows_every_change_of_a_weight():
    layer = nn.Linear(4, 4, bias=False)
    x = torch.randn(1, 4)
    before = tt.certify(layer, x).bound.upper[0]
    with torch.no_grad():
        layer.weight.mul_(2)
    assert tt.certify(layer, x).bound.upper[0] == pytest.approx(2 * before, rel=1e-6)
    layer.weight.data.mul_(2)  # leaves the version counter alone
    assert tt.certify(layer, x).bound.upper[0] == pytest.approx(4 * before, rel=1e-6)
    layer.weight = nn.Parameter(layer.weight.detach() / 4)
    assert tt.certify(layer, x).bound.upper[0] == pytest.approx(before, rel=1e-6)


def test_spectral_norms_are_computed_once(monkeypatch):
    from taut._base import matrix_norm

    count = [0]
    plain = matrix_norm.spectral
    monkeypatch.setattr(
        matrix_norm, "spectral", lambda m: (count.__setitem__(0, count[0] + 1), plain(m))[1]
    )
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(1, 3, 8)
    tt.certify(layer, x, measure=False)
    first = count[0]
    tt.certify(layer, 2 * x, measure=False)
    assert first > 0
    assert count[0] == first


@pytest.mark.theorem("norm-layer", "holds")
@pytest.mark.parametrize("module", [nn.LayerNorm(6), nn.RMSNorm(6, eps=1e-3)], ids=["layer", "rms"])
def test_norm_layers_hold_near_a_point(module):
    torch.manual_seed(0)
    module = module.double()
    with torch.no_grad():
        module.weight.copy_(torch.randn(6))
    for scale in (1e-3, 0.1, 1.0):
        x = scale * torch.randn(1, 3, 6, dtype=torch.float64)
        for radius in (0.0, 0.1 * scale, scale):
            bound = float(tt.certify(module, taut.At(x, radius), norm="token").bound.upper[0])
            for _ in range(20):
                step = torch.randn_like(x)
                other = x + radius * step / step.norm(dim=-1, keepdim=True)
                matrix = torch.autograd.functional.jacobian(module, other)[0, 0, :, 0, 0]
                assert float(torch.linalg.matrix_norm(matrix, 2)) <= bound * (1 + 1e-12)


@pytest.mark.theorem("norm-layer", "attained")
@pytest.mark.theorem("norm-layer", "falsifiable")
def test_norm_layers_attain_their_constants():
    layer = nn.LayerNorm(6, eps=1e-4).double()
    flat = torch.ones(1, 2, 6, dtype=torch.float64)
    certificate = tt.certify(layer, taut.Everywhere((2, 6)))
    here = tt.certify(layer, flat)
    assert certificate.bound.upper[0] == pytest.approx(100.0, rel=1e-9)
    assert here.measured.lower[0] > 0.99 * certificate.bound.upper[0]
    # the length of the output, which attention behind it rests on
    x = 1e6 * torch.randn(1, 2, 6, dtype=torch.float64)
    longest = float(layer(x).detach().norm(dim=-1).max())
    assert 0.999 * math.sqrt(6) < longest <= math.sqrt(6) * (1 + 1e-12)


@pytest.mark.theorem("mlp-split", "holds")
def test_mlps_hold():
    torch.manual_seed(0)
    for seed in range(20):
        torch.manual_seed(seed)
        first, second = nn.Linear(5, 9).double(), nn.Linear(9, 4).double()
        act = [nn.ReLU(), nn.GELU(), nn.SiLU(), nn.Tanh()][seed % 4]
        bound = tt.Interpreter("l2", 0.0, torch.device("cpu")).mlp(
            _region(5), (first.weight, first.bias), act, (second.weight, second.bias)
        )
        for _ in range(20):
            x = 3 * torch.randn(5, dtype=torch.float64)
            network = nn.Sequential(first, act, second)
            matrix = torch.autograd.functional.jacobian(network, x)
            assert float(torch.linalg.matrix_norm(matrix, 2)) <= float(bound.lip[0])


@pytest.mark.theorem("mlp-split", "attained")
@pytest.mark.theorem("mlp-split", "falsifiable")
def test_the_split_is_attained_and_better_than_the_product():
    run = tt.Interpreter("l2", 0.0, torch.device("cpu"))
    one = torch.eye(1, dtype=torch.float64)
    assert run.mlp(_region(1), (one, None), nn.ReLU(), (one, None)).lip[0] == pytest.approx(1.0)
    a = torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double()
    b = torch.tensor([[0.0, 0.0], [0.0, 1.0]]).double()
    # orthogonal: W₂W₁ = 0, and the constant is half the product
    assert run.mlp(_region(2), (a, None), nn.ReLU(), (b, None)).lip[0] == pytest.approx(0.5)


@pytest.mark.theorem("gated-mlp", "holds")
def test_gated_mlps_hold():
    for seed in range(20):
        torch.manual_seed(seed)
        gate, up, down = (
            nn.Linear(5, 7).double(),
            nn.Linear(5, 7).double(),
            nn.Linear(7, 4).double(),
        )
        maps = [(layer.weight, layer.bias) for layer in (gate, up, down)]
        x = torch.randn(1, 2, 5, dtype=torch.float64)

        def network(z, gate=gate, up=up, down=down):
            return down(nn.functional.silu(gate(z)) * up(z))

        for radius in (0.0, 0.3):
            region = _near(x, radius)
            run = tt.Interpreter("token", 0.0, torch.device("cpu"))
            bound = float(run.gated(region, maps[0], nn.SiLU(), maps[1], maps[2]).lip[0])
            for _ in range(20):
                step = torch.randn_like(x)
                other = (x + radius * step / step.norm(dim=-1, keepdim=True))[0, 0]
                matrix = torch.autograd.functional.jacobian(network, other)
                assert float(torch.linalg.matrix_norm(matrix, 2)) <= bound


@pytest.mark.theorem("gated-mlp", "attained")
@pytest.mark.theorem("gated-mlp", "falsifiable")
def test_gated_mlps_are_attained():
    one = (torch.eye(1, dtype=torch.float64), None)
    x = torch.tensor([[[2.0]]], dtype=torch.float64)
    run = tt.Interpreter("token", 0.0, torch.device("cpu"))
    # relu(x)·x has the derivative 2x = 4 at 2
    bound = float(run.gated(_near(x, 0.0), one, nn.ReLU(), one, one).lip[0])
    assert bound == pytest.approx(4.0)


def _region(width):
    from taut.networks.region import everything

    return everything((3, width), 10.0)


def _near(x, radius):
    from taut.networks.region import start

    return start(x, radius)


@pytest.mark.theorem("chain", "attained")
@pytest.mark.theorem("chain", "falsifiable")
def test_a_chain_of_the_same_direction_is_exact():
    chain = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)).double()
    with torch.no_grad():
        for layer, factor in zip(chain, (2.0, 3.0), strict=True):
            layer.weight.copy_(factor * torch.eye(2))
    certificate = tt.certify(chain, torch.ones(1, 2, dtype=torch.float64))
    assert certificate.bound.upper[0] == pytest.approx(6.0)
    assert certificate.measured.lower[0] > 5.99


@pytest.mark.theorem("probe", "holds")
def test_probes_bound_random_matrices():
    for seed in range(30):
        torch.manual_seed(seed)
        layer = nn.Linear(12, 9, bias=False).double()
        exact = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
        found = tt.local_lipschitz(
            layer, torch.ones(1, 12).double(), method="probe", steps=2, directions=4, failure=1e-9,
            seed=seed,
        )  # fmt: skip
        assert found.lower[0] <= exact <= found.upper[0]


@pytest.mark.theorem("probe", "attained")
@pytest.mark.theorem("probe", "falsifiable")
def test_probes_close_in_and_fail_as_often_as_they_say():
    layer = nn.Linear(6, 6, bias=False).double()
    x = torch.ones(1, 6).double()
    exact = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
    far = tt.local_lipschitz(layer, x, method="probe", steps=2)
    near = tt.local_lipschitz(layer, x, method="probe", steps=200)
    assert exact <= near.upper[0] < 1.02 * exact
    assert near.upper[0] < far.upper[0]
    # One direction and a rank-one map: the bound fails with the probability that was allowed.
    with torch.no_grad():
        layer.weight.copy_(torch.outer(torch.ones(6), torch.randn(6)))
    exact = float(torch.linalg.matrix_norm(layer.weight.detach(), 2))
    failed = 0
    for seed in range(400):
        found = tt.local_lipschitz(
            layer, x, method="probe", steps=1, directions=1, failure=0.3, seed=seed
        )
        failed += found.upper[0] < exact
    assert 0.15 < failed / 400 < 0.36


def test_pooling_and_heads():
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    pool = nn.AdaptiveAvgPool1d(1)
    assert tt.certify(pool, x).bound.upper[0] == pytest.approx(1 / math.sqrt(6))
    assert tt.certify(nn.AdaptiveMaxPool1d(1), x).bound.upper[0] == 1.0
    assert tt.certify(nn.Softmax(dim=-1), x).bound.upper[0] == 0.5
    with pytest.raises(ValueError, match="AdaptiveAvgPool1d"):
        tt.certify(nn.AdaptiveAvgPool1d(2), x)


def test_a_rule_of_ones_own():
    class Halved(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, x):
            return x + 0.5 * self.inner(x)

    module = Halved().double()
    with pytest.raises(tt.MissingRuleError, match="Halved"):
        tt.certify(module, torch.ones(1, 4).double())

    @tt.register(Halved)
    def rule(run, module, x):
        return run.add(x, run.scale(run(module.inner, x, "inner"), 0.5, "half"))

    certificate = tt.certify(module, torch.ones(1, 4).double())
    exact = float(torch.linalg.matrix_norm(module.inner.weight.detach(), 2))
    assert certificate.bound.upper[0] == pytest.approx(1 + exact / 2)
    names = [row["module"] for row in certificate.rows()]
    assert names == ["", "inner", "half"]

    class Other(Halved):
        def forward(self, x):
            return self.inner(x)

    with pytest.raises(tt.MissingRuleError, match="Other"):
        tt.certify(Other().double(), torch.ones(1, 4).double())

    class Lying(Halved):
        pass

    hooked = Lying().double()
    hooked.register_forward_hook(lambda module, args, output: 2 * output)
    with pytest.raises(ValueError, match="hooks"):
        tt.certify(hooked, torch.ones(1, 4).double())
    replaced = Lying().double()
    replaced.forward = lambda x: 2 * x
    with pytest.raises(ValueError, match="was replaced"):
        tt.certify(replaced, torch.ones(1, 4).double())

    @tt.register(Lying)
    def wrong(run, module, x):
        return run.add(x, run(module.inner, x, "inner"))

    for x in (torch.ones(1, 4), torch.zeros(1, 4)):
        with pytest.raises(RuntimeError, match="does not describe"):
            tt.certify(Lying().double(), x.double())


def test_soft_caps_and_norms_of_queries_hold():
    class Capped(nn.Module):
        def __init__(self, heads):
            super().__init__()
            self.heads = heads
            self.weight = nn.Parameter(torch.zeros(1, dtype=torch.float64))

        def forward(self, x):
            h = self.heads
            q, k, v = (
                (x @ m[0].mT + m[1]).unflatten(-1, (c, -1)).transpose(1, 2)
                for m, c in ((h.query, h.heads), (h.key, h.kv_heads), (h.value, h.kv_heads))
            )
            if h.query_norm is not None:
                q, k = (
                    z / (z.square().mean(-1, keepdim=True) + n.epsilon).sqrt() * n.gain
                    for z, n in ((q, h.query_norm), (k, h.key_norm))
                )
            k, v = (z.repeat_interleave(h.group, dim=1) for z in (k, v))
            s = h.scale * q @ k.mT
            s = s if h.softcap is None else h.softcap * torch.tanh(s / h.softcap)
            return (s.softmax(-1) @ v).transpose(1, 2).flatten(2) @ h.output[0].mT + h.output[1]

    @tt.register(Capped)
    def rule(run, module, x):
        return run.attention(x, module.heads)

    for seed in range(24):
        torch.manual_seed(seed)

        def affine(rows, columns, size):
            return (
                size * torch.randn(rows, columns, dtype=torch.float64),
                torch.randn(rows, dtype=torch.float64),
            )

        size = (0.3, 1.0, 3.0)[seed % 3]
        norm = tt.HeadNorm(torch.randn(3, dtype=torch.float64), 1e-2) if seed % 2 else None
        heads = tt.Heads(
            affine(12, 5, size), affine(6, 5, size), affine(6, 5, 1.0), affine(5, 12, 1.0),
            4, 2, 0.7, softcap=(None, 2.0, 20.0)[seed // 2 % 3], query_norm=norm,
            key_norm=norm,
        )  # fmt: skip
        module = Capped(heads)
        x = torch.randn(1, 4, 5, dtype=torch.float64)
        for radius in (0.0, 0.05, 1.0):
            bound = tt.certify(module, taut.At(x, radius), measure=False).bound.upper[0]
            for _ in range(6):
                step = torch.randn_like(x)
                other = x + radius * step / step.norm()
                matrix = torch.autograd.functional.jacobian(module, other).reshape(20, 20)
                assert float(torch.linalg.matrix_norm(matrix, 2)) <= bound
        longest = float(x.norm(dim=-1).max()) + 1.0
        ball = tt.certify(module, taut.Ball(longest, (4, 5)), measure=False).bound.upper[0]
        matrix = torch.autograd.functional.jacobian(module, x).reshape(20, 20)
        assert float(torch.linalg.matrix_norm(matrix, 2)) <= ball
        assert np.isfinite(ball)


class Gated(nn.Module):
    """The product of two paths, with nothing else around it."""

    def __init__(self, width):
        super().__init__()
        self.gate, self.value = (nn.Linear(width, width, bias=False).double() for _ in range(2))

    def forward(self, x):
        return self.gate(x) * self.value(x)


@tt.register(Gated)
def _gated(run, module, x):
    return run.product(run(module.gate, x, "gate"), run(module.value, x, "value"))


@pytest.mark.parametrize("norm", ["l2", "token"])
@pytest.mark.parametrize("seed", range(3))
def test_products_of_two_paths_are_bounded(norm, seed):
    """No derivative on the domain exceeds the constant; one entry by itself attains it."""
    torch.manual_seed(seed)
    for width in (1, 3):
        net, radius = Gated(width).requires_grad_(False), 0.7
        x = torch.randn(1, 1, width, dtype=torch.float64)
        near = float(tt.certify(net, taut.At(x, radius), norm=norm).bound.upper[0])
        ball = float(tt.certify(net, taut.Ball(radius, shape=(1, width)), norm=norm).bound.upper[0])
        for centre, bound in ((x, near), (torch.zeros_like(x), ball)):
            away = torch.randn(200, 1, 1, width, dtype=torch.float64)
            points = centre + radius * away / away.norm(dim=-1, keepdim=True)
            slopes = torch.func.vmap(torch.func.jacrev(net))(points).reshape(200, width, width)
            steepest = float(torch.linalg.matrix_norm(slopes, 2).max())
            assert steepest <= bound * (1 + 1e-12)
            if width == 1:  # (ax)(bx) has the slope 2abx
                assert steepest == pytest.approx(bound)
