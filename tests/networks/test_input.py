"""What certificates refuse, and what they say; half precision, shared and changed modules."""

from __future__ import annotations

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

import taut  # noqa: E402
import taut.networks as tt  # noqa: E402

X = torch.ones(1, 3, 4)


def layer(**options):
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, **options).eval()


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: tt.certify(3, X), TypeError, "torch.nn.Module"),
        (lambda: tt.certify(nn.Linear(4, 4), 3.0), TypeError, "domain must be"),
        (lambda: tt.certify(nn.Linear(4, 4), X, norm="l1"), ValueError, "l2 or token"),
        (lambda: tt.certify(nn.Linear(4, 4), torch.ones(1, 3, dtype=int)), TypeError, "embeddings"),
        (lambda: tt.certify(nn.Linear(4, 4), torch.ones(4)), ValueError, "batch"),
        (lambda: tt.certify(nn.Linear(4, 4), torch.ones(0, 4)), ValueError, "empty"),
        (lambda: tt.certify(nn.Linear(4, 4), X * float("nan")), ValueError, "NaN"),
        (lambda: tt.certify(nn.Linear(5, 4), X), ValueError, "width"),
        (lambda: tt.certify(layer(), torch.ones(1, 3, 5)), ValueError, "width"),
        (lambda: tt.certify(layer().train(), X), ValueError, "eval"),
        (lambda: tt.certify(layer(), X, mask=torch.ones(3, 3)), TypeError, "bool"),
        (lambda: tt.certify(layer(), X, mask=torch.ones(2, 2) > 0), ValueError, "mask"),
        (lambda: tt.certify(layer(), X, mask=torch.zeros(3, 3) > 0), ValueError, "without any key"),
        (lambda: tt.certify(layer(), X, context=X), TypeError, "context"),
        (lambda: tt.certify(nn.Embedding(3, 4), X), tt.MissingRuleError, "register"),
        (lambda: tt.certify(nn.ModuleList(), X), tt.MissingRuleError, "ModuleList"),
        (lambda: tt.certify(nn.Linear(4, 4, device="meta"), X), ValueError, "meta"),
        (lambda: taut.Ball(-1.0, (3, 4)), ValueError, "radius"),
        (lambda: taut.Ball(float("nan"), (3, 4)), ValueError, "radius"),
        (lambda: taut.Ball(1.0, (3,)), ValueError, "shape"),
        (lambda: taut.Ball(1.0, 3), ValueError, "shape"),
        (lambda: taut.Everywhere((0, 4)), ValueError, "shape"),
        (lambda: taut.At(X, -1.0), ValueError, "radius"),
        (lambda: taut.At(X, torch.ones(2)), ValueError, "radius"),
        (lambda: tt.certify(nn.Linear(4, 4), taut.At([1.0])), TypeError, "tensor"),
        (lambda: tt.certify(nn.Linear(4, 4), taut.Ball(1.0)), ValueError, "shape"),
        (lambda: tt.register(3), TypeError, "classes"),
        (lambda: tt.local_lipschitz(nn.Linear(4, 4), X, method="svd"), ValueError, "method"),
        (lambda: tt.local_lipschitz(nn.Linear(4, 4), X, method="probe", failure=0.0), ValueError,
         "probability"),
        (lambda: tt.certified_radius(nn.ReLU(), X), TypeError, "one row of logits"),
        (lambda: tt.certified_radius(nn.Linear(4, 1), X[:, 0]), ValueError, "two classes"),
    ],
)  # fmt: skip
def test_bad_input_is_refused_with_a_reason(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_weights_that_are_no_numbers_are_named():
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    with torch.no_grad():
        module[1].weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match=r"1\.weight contains NaN"):
        tt.certify(module, X)


def test_every_missing_rule_is_listed_at_once():
    class Unknown(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Bilinear(2, 2, 2)

    module = nn.Sequential(nn.Linear(4, 4), Unknown(), nn.Sequential(nn.Hardshrink()))
    with pytest.raises(tt.MissingRuleError) as caught:
        tt.certify(module, X)
    text = str(caught.value)
    assert "Unknown" in text
    assert "2.0: torch.nn.modules.activation.Hardshrink" in text
    assert "Bilinear" in text
    assert "@taut.networks.register(Unknown)" in text


def test_empty_and_trivial_modules():
    assert tt.certify(nn.Sequential(), X).bound.upper[0] == 1.0
    assert tt.certify(nn.Identity(), X).bound.upper[0] == 1.0
    zero = nn.Linear(4, 4)
    with torch.no_grad():
        zero.weight.zero_()
    assert tt.certify(zero, X).bound.upper[0] == 0.0
    assert tt.certify(nn.Dropout(0.5).eval(), X).bound.upper[0] == 1.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_precisions(dtype):
    module = layer().to(dtype)
    x = torch.randn(1, 3, 4).to(dtype)
    certificate = tt.certify(module, x)
    assert certificate.measured.lower[0] <= certificate.bound.upper[0]
    wide = tt.certify(layer().to(dtype).double(), x.double())
    assert certificate.bound.upper[0] == pytest.approx(wide.bound.upper[0], rel=1e-9)
    assert certificate.execution_error[0] > wide.execution_error[0] or dtype == torch.float64


def test_rounding_covers_the_network_as_executed():
    """Two inputs so near that float32 shows rounding alone."""
    torch.manual_seed(0)
    for seed in range(10):
        torch.manual_seed(seed)
        module = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True).eval()
        x = torch.randn(1, 6, 16)
        y = x + 1e-7 * torch.randn_like(x)
        certificate = tt.certify(module, taut.At(x, 1e-4), measure=False)
        with torch.no_grad():
            moved = float((module(x) - module(y)).double().norm())
            truth = module.double()(x.double())
            lost = float((module.float()(x).double() - truth).norm())
        apart = float((x - y).double().norm())
        allowed = float(certificate.execution_error[0])
        assert lost <= allowed
        assert moved <= float(certificate.bound.upper[0]) * apart + 2 * allowed


def test_shared_modules_count_as_often_as_they_are_used():
    inner = nn.Linear(4, 4, bias=False)
    once = tt.certify(inner, X).bound.upper[0]
    twice = tt.certify(nn.Sequential(inner, inner), X).bound.upper[0]
    assert twice == pytest.approx(once**2)


def test_parametrised_weights_are_taken_as_they_are():
    module = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval()
    certificate = tt.certify(module, X)
    exact = float(torch.linalg.matrix_norm(module.weight.detach().double(), 2))
    assert certificate.bound.upper[0] == pytest.approx(exact, rel=1e-6)


def test_modules_are_left_as_they_were():
    module = layer()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    tt.certify(module, X)
    tt.local_lipschitz(module, X)
    assert not module.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    assert all(p.grad is None for p in module.parameters())


def test_random_numbers_are_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    tt.certify(layer_of_five(), taut.Ball(1.0, (3, 4)))
    assert torch.equal(torch.rand(3), expected)


def layer_of_five():
    state = torch.get_rng_state()
    found = layer()
    torch.set_rng_state(state)
    return found


def test_a_certificate_shows_itself():
    certificate = tt.certify(layer(), torch.randn(2, 3, 4))
    text = str(certificate)
    assert "Lipschitz constant at most" in text
    assert "the worst of 2 inputs" in text
    assert "self_attn" in text
    shown = certificate._repr_html_()
    assert shown.count("<tr>") == 1 + len(certificate.rows(2))
    assert "text-align:right" in shown
    record = json.loads(json.dumps(certificate.to_dict()))
    assert record["norm"] == "l2"
    assert len(record["upper"]) == 2
    shares = [row["share"] for row in certificate.rows() if row["depth"] == 1]
    assert sum(shares) == pytest.approx(1.0)
    assert certificate.rows(depth=0)[0]["bound"] == certificate.bound.upper.max()


def test_unbounded_attention_says_so():
    certificate = tt.certify(nn.MultiheadAttention(4, 2), taut.Everywhere((3, 4)), measure=False)
    assert np.isinf(certificate.bound.upper[0])
    assert "not Lipschitz" in certificate.headline()
    assert certificate.to_dict()["upper"] == [None]


def test_importing_needs_torch_only():
    import subprocess
    import sys

    code = "import sys, taut.networks; sys.exit('transformers' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_bounds_far_above_the_derivative_are_called_vacuous():
    """More than 1000 times its upper side, or what was measured; nothing is said without either."""

    def deep(layers, radius=0.0, **options):
        torch.manual_seed(0)
        half = nn.Linear(2, 2, bias=False, dtype=torch.float64)
        with torch.no_grad():
            half.weight.copy_(torch.tensor([[0.0, 0.0], [4.0, 0.0]]))  # its square is 0, not 16
        net = nn.Sequential(*[half] * layers, nn.Linear(2, 2, dtype=torch.float64))
        x = torch.ones(2, 2, dtype=torch.float64)
        return net, x, tt.certify(net, taut.At(x, radius), **options)

    net, x, certificate = deep(1)
    derivative = tt.local_lipschitz(net, x)
    assert certificate.vacuous() == certificate.vacuous(derivative) == [False, False]
    assert "vacuous" not in str(certificate)
    assert certificate.headline(derivative).startswith("Norm of the derivative: ")
    net, x, certificate = deep(8)
    derivative = tt.local_lipschitz(net, x)
    assert certificate.vacuous(derivative) == [True, True]
    assert certificate.to_dict(derivative)["vacuous"] == [True, True]
    assert "vacuous for 2 of 2 inputs" in certificate.headline(derivative)
    assert certificate.vacuous() == [None, None]  # a measured 0 may be an overflow
    assert deep(1, measure=False)[2].vacuous() == [None, None]
    everywhere = tt.certify(nn.MultiheadAttention(4, 2, batch_first=True), taut.Everywhere((2, 4)))
    assert everywhere.vacuous() == [True]
    # A derivative in another norm proves nothing about this one.
    token = tt.certify(net, x, norm="token", measure=False)
    assert token.vacuous(derivative) == [None, None]


def test_what_is_shown_is_rounded_outward():
    from taut.networks.certificate import shown

    for x in (1.00005, 9.99951, 87.6449, 0.00123456, 1.0, 1.199e27, 99999.0):
        assert float(shown(x, up=False)) <= x <= float(shown(x))
        assert float(shown(x)) - float(shown(x, up=False)) <= 3e-3 * x
