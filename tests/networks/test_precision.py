"""Certificates do not depend on how coarsely torch is told to multiply float32."""

from __future__ import annotations

import contextlib

import pytest

import taut

torch = pytest.importorskip("torch")
nn = torch.nn

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import taut.networks as tt  # noqa: E402
from taut.networks.operations.covariance_norm import LONG, spreads  # noqa: E402

PRODUCTS = ("mm", "bmm", "addmm", "baddbmm", "linear", "matmul")


class Products(TorchDispatchMode):
    """The types that matrices were multiplied in."""

    def __init__(self):
        super().__init__()
        self.kinds = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in PRODUCTS:
            self.kinds |= {a.dtype for a in args if isinstance(a, torch.Tensor)}
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def matmul_precision(value):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(value)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextlib.contextmanager
def flag(owner, name, value):
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def coarse():
    found = {
        "high": lambda: matmul_precision("high"),
        "medium": lambda: matmul_precision("medium"),
        "tf32": lambda: flag(torch.backends.cuda.matmul, "allow_tf32", True),
        "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    }
    if hasattr(torch.backends.mkldnn, "matmul"):
        of_cpu = torch.backends.mkldnn.matmul
        found["mkldnn"] = lambda: flag(of_cpu, "fp32_precision", "bf16")
    return found


def long_rows():
    torch.manual_seed(0)
    weights = torch.softmax(torch.randn(3, 2 * LONG, dtype=torch.float64), dim=-1)
    return weights, torch.randn(2 * LONG, 4, dtype=torch.float64)


@pytest.mark.parametrize("setting", coarse())
def test_second_moments_are_never_summed_coarsely(setting):
    weights, values = long_rows()
    centred = values - (weights @ values)[:, None, :]
    moments = (weights[:, :, None] * centred).mT @ centred
    exact = torch.linalg.eigvalsh(moments)[:, -1]
    usual = spreads(weights, values, None)
    with coarse()[setting](), Products() as seen:
        found = spreads(weights, values, None)
    allowed = {torch.float64, torch.float32} if setting == "autocast" else {torch.float64}
    assert seen.kinds <= allowed
    assert (found >= exact).all()
    torch.testing.assert_close(found, usual, rtol=1e-3, atol=0.0)


def test_the_usual_setting_sums_in_float32():
    """Otherwise the test above could not fail."""
    with Products() as seen:
        spreads(*long_rows(), None)
    assert torch.float32 in seen.kinds


def layer():
    torch.manual_seed(0)
    return nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).eval()


CLASSIFIER = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
ASKED = {
    "at": lambda: tt.certify(layer(), torch.ones(1, LONG, 8)).bound.upper,
    "ball": lambda: tt.certify(layer(), taut.Ball(1.0, shape=(5, 8))).bound.upper,
    "derivative": lambda: tt.local_lipschitz(layer(), torch.ones(1, 4, 8)).upper,
    "radius": lambda: tt.certified_radius(CLASSIFIER, torch.ones(1, 4)).radius,
    "attack": lambda: tt.certified_radius(CLASSIFIER, torch.ones(1, 4)).attack(),
}


@pytest.mark.parametrize("asked", ASKED)
def test_certificates_are_made_without_autocast(asked):
    usual = ASKED[asked]()
    with torch.autocast("cpu", dtype=torch.bfloat16), Products() as seen:
        found = ASKED[asked]()
        assert torch.is_autocast_enabled("cpu")  # it is the caller's afterwards
    assert torch.bfloat16 not in seen.kinds
    assert found == pytest.approx(usual, rel=1e-6)


@pytest.mark.parametrize("setting", [name for name in coarse() if name != "autocast"])
def test_coarse_products_count_as_rounding_of_the_network(setting):
    """The network as executed multiplies with fewer digits then."""
    x = torch.ones(1, 4)
    usual = tt.certify(CLASSIFIER, x, measure=False)
    with coarse()[setting]():
        found = tt.certify(CLASSIFIER, x, measure=False)
        exact = tt.certify(nn.Linear(4, 4).double(), x.double(), measure=False)
    assert found.execution_error[0] >= 2**15 * usual.execution_error[0]
    assert exact.execution_error[0] < 1e-12
    assert found.bound.upper == usual.bound.upper
